"""Checkpoints of other projects: each layout gives back the model that was wrapped, or an error."""

import math
import os
import re
import shutil
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from lightly.loss import DINOLoss, NTXentLoss
from lightly.models import ResNetGenerator
from lightly.models.modules import DINOProjectionHead, MoCoProjectionHead
from safetensors.torch import save_file
from torch import nn

from mast.core.errors import UserError
from mast.models import Encoder, EncoderConfig, Foreign, is_foreign, load_foreign, save_encoder
from mast.models.foreign import RESNETS, _infer
from mast.models.layouts import LAYOUTS

State = dict[str, torch.Tensor]


def scrambled(module: nn.Module) -> nn.Module:
    """Every parameter and statistic away from its start, so that each of them counts."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in module.state_dict().items():
        if "running_var" in name or (name.endswith("weight") and tensor.ndim == 1):
            tensor.uniform_(0.5, 1.5, generator=generator)
        elif tensor.ndim == 1:
            tensor.uniform_(-0.1, 0.1, generator=generator)
    return module.eval()


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    return scrambled(torchvision.models.resnet18())


@pytest.fixture(autouse=True)
def _nothing_is_kept(tmp_path: Path) -> Iterator[None]:
    """Dozens of ResNets would otherwise stay in pytest's folder."""
    yield
    shutil.rmtree(tmp_path)


@torch.no_grad()
def assert_is(foreign: Foreign, model: nn.Module, size: int = 64) -> None:
    """The encoder's representations are the model's pooled features."""
    images_BCHW = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    normalised = torchvision.transforms.functional.normalize(
        images_BCHW, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )
    expected_BC = model(normalised).flatten(1)
    assert not foreign.encoder.training
    torch.testing.assert_close(foreign.encoder(images_BCHW), expected_BC, rtol=1e-4, atol=1e-5)


def pooled(resnet: nn.Module) -> nn.Module:
    return nn.Sequential(*list(resnet.children())[:-1])


def under(prefix: str, module: nn.Module, without: tuple[str, ...] = ("fc.",)) -> State:
    return {
        prefix + key: value
        for key, value in module.state_dict().items()
        if not key.startswith(without)
    }


# ------------------------------------------------------------------------------ each layout


@cache
def other() -> nn.Module:
    """A model of the same shapes that must not be taken for the encoder: all zeros, on no disk."""
    model = torchvision.models.resnet18()
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
    return model


def moco(resnet: nn.Module) -> Any:
    mlp = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))
    query, key = under("module.encoder_q.", resnet), under("module.encoder_k.", other())
    return {
        "epoch": 200,
        "arch": "resnet18",
        "state_dict": query
        | under("module.encoder_q.fc.", mlp)
        | key
        | under("module.encoder_k.fc.", mlp)
        | {"module.queue": torch.rand(128, 16), "module.queue_ptr": torch.zeros(1).long()},
        "optimizer": {"state": {0: {"momentum_buffer": torch.zeros(3)}}, "param_groups": []},
    }


def moco3(resnet: nn.Module) -> Any:
    mlp = nn.Sequential(nn.Linear(512, 8, bias=False), nn.BatchNorm1d(8))
    return {
        "state_dict": under("module.base_encoder.", resnet)
        | under("module.base_encoder.fc.", mlp)
        | under("module.momentum_encoder.", other())
        | under("module.predictor.", mlp)
    }


def simsiam(resnet: nn.Module) -> Any:
    return {
        "state_dict": under("module.encoder.", resnet)
        | under("module.encoder.fc.", nn.Sequential(nn.Linear(512, 8), nn.BatchNorm1d(8)))
        | under("module.predictor.", nn.Sequential(nn.Linear(8, 8)))
    }


def swav(resnet: nn.Module) -> Any:
    return (
        under("module.", resnet)
        | under("module.projection_head.", nn.Sequential(nn.Linear(512, 8)))
        | under("module.prototypes.", nn.Linear(8, 30))
    )


def vicreg(resnet: nn.Module) -> Any:
    head = under("module.projector.", nn.Sequential(nn.Linear(512, 8), nn.BatchNorm1d(8)))
    return {"epoch": 3, "model": under("module.backbone.", resnet) | head, "optimizer": {}}


def barlow(resnet: nn.Module) -> Any:
    state = vicreg(resnet)
    state["model"] |= under("module.bn.", nn.BatchNorm1d(8, affine=False))
    return state


def dino(resnet: nn.Module) -> Any:
    def wrapped(backbone: nn.Module) -> State:
        return under("module.backbone.", backbone) | under("module.head.", nn.Linear(512, 8))

    return {
        "student": wrapped(other()),
        "teacher": wrapped(resnet),
        "args": Namespace(arch="resnet18", lr=np.float64(0.3)),
        "dino_loss": {"center": torch.zeros(1, 8)},
    }


def dino2(resnet: nn.Module) -> Any:
    heads = [under(f"{name}_head.", nn.Linear(512, 8)) for name in ("dino", "ibot")]
    return {"teacher": under("backbone.", resnet) | heads[0] | heads[1]}


def stable(resnet: nn.Module) -> Any:
    heads = under("projector.", nn.Linear(512, 8)) | under("predictor.", nn.Linear(8, 8))
    probe = under("callbacks_modules.probe.", nn.Linear(512, 10))
    return {"state_dict": under("backbone.", resnet) | heads | probe}


def byol(resnet: nn.Module) -> Any:
    whole = {f"{prefix}{key}": value for prefix in ("net.", "online_encoder.net.")
             for key, value in resnet.state_dict().items()}  # fmt: skip
    return (
        whole
        | under("online_encoder.projector.", nn.Linear(512, 8))
        | under("online_predictor.", nn.Linear(8, 8))
        | under("target_encoder.net.", other())
        | under("target_encoder.projector.", nn.Linear(512, 8))
    )


def solo(resnet: nn.Module, name: str = "backbone.") -> Any:
    return {
        "pytorch-lightning_version": "2.1.2",
        "state_dict": under(name, resnet)
        | under("classifier.", nn.Linear(512, 10))
        | under("momentum_" + name, other())
        | under("projector.", nn.Linear(512, 8))
        | {"queue": torch.rand(2, 8, 16), "queue_ptr": torch.zeros(1).long()},
    }


def solo_dino(resnet: nn.Module) -> Any:
    return {
        "state_dict": under("backbone.", resnet)
        | under("classifier.", nn.Linear(512, 10))
        | under("momentum_backbone.", other())
        | under("head.", nn.Linear(512, 8))
        | under("momentum_head.", nn.Linear(512, 8))
        | {"dino_loss_func.center": torch.zeros(1, 8)},
    }


def vissl(resnet: nn.Module) -> Any:
    heads = {"0.clf.0.weight": torch.zeros(8, 512)}
    trunk = under("_feature_blocks.", resnet)
    return {
        "phase_idx": 100,
        "classy_state_dict": {"base_model": {"model": {"trunk": trunk, "heads": heads}}},
    }


def mmselfsup(resnet: nn.Module) -> Any:
    return {
        "meta": {"epoch": 200, "author": "MMSelfSup"},
        "state_dict": under("backbone.", resnet)
        | under("neck.", nn.Linear(512, 8))
        | under("encoder_q.0.", resnet)
        | under("encoder_k.0.", other())
        | under("target_net.module.0.", other())
        | {"queue": torch.rand(8, 16)},
    }


def lightning(module: nn.Module) -> Any:
    return {
        "epoch": 9,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": module.state_dict(),
        "hyper_parameters": {"lr": 0.06},
    }


def lightly_moco(resnet: nn.Module) -> Any:
    module = nn.Module()
    module.backbone = pooled(resnet)
    module.backbone_momentum = pooled(other())
    module.projection_head = MoCoProjectionHead(512, 64, 16)
    module.projection_head_momentum = MoCoProjectionHead(512, 64, 16)
    module.criterion = NTXentLoss(memory_bank_size=(8, 16))
    return lightning(module)


def lightly_dino(resnet: nn.Module) -> Any:
    module = nn.Module()
    module.student_backbone, module.teacher_backbone = pooled(other()), pooled(resnet)
    with warnings.catch_warnings():  # lightly's heads use PyTorch's old weight normalisation
        warnings.simplefilter("ignore", FutureWarning)
        module.student_head = DINOProjectionHead(512, 16, 8, 32)
        module.teacher_head = DINOProjectionHead(512, 16, 8, 32)
    module.criterion = DINOLoss(output_dim=32)
    return lightning(module)


ROWS: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "moco.pth.tar": (moco, "MoCo v1 or v2"),
    "moco3.pth.tar": (moco3, "MoCo v3"),
    "simsiam.pth.tar": (simsiam, "SimSiam"),
    "swav.pth.tar": (swav, "SwAV"),
    "swav-training.pth.tar": (lambda model: {"state_dict": swav(model), "epoch": 1}, "SwAV"),
    "vicreg.pth": (vicreg, "VICReg or Barlow Twins"),
    "barlow.pth": (barlow, "VICReg or Barlow Twins"),
    "dino.pth": (dino, "DINO"),
    "dino2.pth": (dino2, "DINO"),
    "stable.ckpt": (stable, "stable-pretraining"),
    "byol.pt": (byol, "BYOL-pytorch"),
    "solo.ckpt": (solo, "solo-learn"),
    "solo-old.ckpt": (lambda model: solo(model, "encoder."), "solo-learn, its first versions"),
    "solo-dino.ckpt": (solo_dino, "solo-learn, its DINO"),
    "vissl.torch": (vissl, "VISSL"),
    "mmselfsup.pth": (mmselfsup, "MMSelfSup"),
    "lightly.ckpt": (lightly_moco, "lightly"),
    "lightly-dino.ckpt": (lightly_dino, "lightly, with a teacher"),
    "plain.pth": (lambda model: model.state_dict(), "timm or torchvision"),
    "without-classifier.pth": (lambda model: under("", model), "timm or torchvision"),
    "timm.pth.tar": (
        lambda model: {"state_dict": other().state_dict(), "state_dict_ema": under("", model)},
        "timm or torchvision",
    ),
    "compiled.pth": (lambda model: under("_orig_mod.module.", model), "timm or torchvision"),
}


def test_every_layout_has_a_row() -> None:
    assert {layout.name for layout in LAYOUTS} == {layout for _, layout in ROWS.values()}


@pytest.mark.parametrize("file", ROWS)
def test_layouts(file: str, resnet: nn.Module, tmp_path: Path) -> None:
    write, layout = ROWS[file]
    torch.save(write(resnet), tmp_path / file)
    foreign = load_foreign(tmp_path / file, size=64)
    assert foreign.layout == layout
    assert foreign.encoder.config == EncoderConfig("resnet18", stem="standard")
    assert_is(foreign, pooled(resnet))


@pytest.mark.parametrize("write", [moco3, solo, dino, vicreg, lightly_moco])
def test_weights_saved_alone_are_the_same(
    write: Callable[[nn.Module], Any], resnet: nn.Module, tmp_path: Path
) -> None:
    content = write(resnet)
    (part,) = content.keys() & {"state_dict", "model", "teacher"}
    torch.save(content[part], tmp_path / "weights.pth")
    found = load_foreign(tmp_path / "weights.pth", size=32).encoder.model.state_dict()
    assert torch.equal(found["conv1.weight"], resnet.conv1.weight)


def test_left_out_are_the_keys_that_are_not_of_the_encoder(
    resnet: nn.Module, tmp_path: Path
) -> None:
    torch.save(simsiam(resnet), tmp_path / "simsiam.pth")
    assert sorted(load_foreign(tmp_path / "simsiam.pth", size=32).left_out) == [
        "encoder.fc.0.bias", "encoder.fc.0.weight", "encoder.fc.1.bias",
        "encoder.fc.1.num_batches_tracked", "encoder.fc.1.running_mean",
        "encoder.fc.1.running_var", "encoder.fc.1.weight", "predictor.0.bias",
        "predictor.0.weight",
    ]  # fmt: skip


def test_safetensors_and_old_files(resnet: nn.Module, tmp_path: Path) -> None:
    state = {key: value for key, value in resnet.state_dict().items() if "batches" not in key}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for file in ("model.safetensors", "old.pth"):
        assert is_foreign(tmp_path / file)
        assert_is(load_foreign(tmp_path / file, size=64), pooled(resnet))
    save_encoder(Encoder(EncoderConfig("resnet18"), 32), tmp_path / "ours.safetensors")
    assert not is_foreign(tmp_path / "ours.safetensors")
    assert not is_foreign(tmp_path)


# ---------------------------------------------------------------------------- architectures


@pytest.mark.parametrize("name", RESNETS.values())
def test_resnets_are_inferred(name: str) -> None:
    with torch.device("meta"):  # the shapes are enough
        models = [torchvision.models.get_model(name), timm.create_model(name)]
    for model in models:
        assert _infer(Path(), LAYOUTS[-1], model.state_dict()) == (name, {})


def small(resnet: nn.Module, padding: int) -> nn.Module:
    """A ResNet as it is made for CIFAR."""
    twin = deepcopy(resnet)
    twin.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=padding, bias=False)
    twin.maxpool = nn.Identity()
    return twin.eval()


def test_small_stems(resnet: nn.Module, tmp_path: Path) -> None:
    for padding, write in ((2, solo), (1, lightly_dino_of_small), (1, vicreg)):
        model = small(resnet, padding)
        torch.save(write(model), tmp_path / "model.ckpt")
        foreign = load_foreign(tmp_path / "model.ckpt")
        assert foreign.encoder.size == 32
        assert_is(foreign, pooled(model), size=32)


def lightly_dino_of_small(model: nn.Module) -> Any:
    return lightning(nn.ModuleDict({"teacher_backbone": pooled(model)}))


def test_lightlys_own_resnet(tmp_path: Path) -> None:
    resnet = scrambled(ResNetGenerator("resnet-18"))
    module = nn.Module()
    module.backbone = nn.Sequential(*list(resnet.children())[:-1], nn.AdaptiveAvgPool2d(1))
    torch.save(lightning(module), tmp_path / "model.ckpt")
    foreign = load_foreign(tmp_path / "model.ckpt")
    resnet.linear = nn.Identity()  # its pooling is for 32 pixels
    assert_is(foreign, resnet, size=32)


def test_what_export_writes_is_read_with_its_stem(tmp_path: Path) -> None:
    from mast.commands.export import export

    encoder = scrambled(Encoder(EncoderConfig("resnet18", stem="small", stem_stride=2), 48))
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    exported = export(tmp_path / "encoder.safetensors", "torchvision")
    foreign = load_foreign(exported.folder / "model.safetensors")
    assert foreign.encoder.size == 48
    images_BCHW = torch.rand(2, 3, 48, 48)
    torch.testing.assert_close(foreign.encoder(images_BCHW), encoder(images_BCHW))


def vit(name: str, **options: Any) -> nn.Module:
    return scrambled(timm.create_model(name, num_classes=3, **options))


def test_vits_are_inferred(tmp_path: Path) -> None:
    model = vit("vit_tiny_patch16_224", patch_size=8, img_size=64, init_values=0.1)
    torch.save({"teacher": under("backbone.", model, ())}, tmp_path / "vit.pth")
    foreign = load_foreign(tmp_path / "vit.pth", size=64)
    assert foreign.left_out == ("backbone.head.weight", "backbone.head.bias")
    model.reset_classifier(0)
    assert_is(foreign, model)
    larger = timm.create_model(
        "vit_tiny_patch16_224", num_classes=0, patch_size=8, img_size=64, init_values=0.1,
        dynamic_img_size=True,
    ).eval()  # fmt: skip
    larger.load_state_dict(model.state_dict())
    assert_is(load_foreign(tmp_path / "vit.pth", size=96), larger, size=96)
    with pytest.raises(UserError, match="size 100 is no multiple of the patches' 8 pixels"):
        load_foreign(tmp_path / "vit.pth", size=100)


@torch.no_grad()
def test_registers_as_dinov2_has_them(tmp_path: Path) -> None:
    """Their class token has a position, which timm adds to the token."""
    registers = {"reg_tokens": 4, "no_embed_class": True}
    model = vit("vit_tiny_patch16_224", patch_size=8, img_size=64, init_values=0.1, **registers)
    model.reset_classifier(0)
    state = model.state_dict()
    own = torch.rand(1, 1, 192, generator=torch.Generator().manual_seed(0))
    state |= {
        "register_tokens": state.pop("reg_token"), "cls_token": state["cls_token"] - own,
        "pos_embed": torch.cat([own, state["pos_embed"]], dim=1),
        "mask_token": torch.zeros(1, 192),
    }  # fmt: skip
    torch.save(state, tmp_path / "dinov2.pth")
    assert_is(load_foreign(tmp_path / "dinov2.pth", size=64), model)
    assert load_foreign(tmp_path / "dinov2.pth", size=96).encoder.config.options["reg_tokens"] == 4


def test_heads_of_mocos_vits(tmp_path: Path) -> None:
    """No weight tells that MoCo v3's small ViT has 12 heads where timm's has 6."""
    model = vit("vit_small_patch16_224", num_heads=12, img_size=32)
    with torch.no_grad():
        model.pos_embed[0, 0] = 0.0
    state = {f"module.base_encoder.{key}": value for key, value in model.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "moco3.pth")
    foreign = load_foreign(tmp_path / "moco3.pth", size=32)
    model.reset_classifier(0)
    assert_is(foreign, model, size=32)
    torch.save(model.state_dict(), tmp_path / "plain.pth")
    with pytest.raises(UserError, match="do not tell the architecture"):
        load_foreign(tmp_path / "plain.pth", size=32)


@pytest.mark.parametrize("name", ["convnext_atto", "torchvision:mobilenet_v3_small"])
def test_names_of_other_models(name: str, tmp_path: Path) -> None:
    library, _, bare = name.rpartition(":")
    model = scrambled(torchvision.models.get_model(bare) if library else timm.create_model(bare))
    torch.save({"model": under("module.", model, ())}, tmp_path / "model.pth")
    with pytest.raises(UserError, match="give its timm or torchvision name"):
        load_foreign(tmp_path / "model.pth")
    foreign = load_foreign(tmp_path / "model.pth", name, 64)
    assert all(key.startswith(("head.fc", "classifier")) for key in foreign.left_out)
    if library:
        model.classifier = nn.Identity()
    else:
        model.reset_classifier(0)
    assert_is(foreign, model)


# ------------------------------------------------------------------------------ by their order


def renamed(state: State, *names: tuple[str, str]) -> State:
    """The same weights in the same order, under names of another program."""
    for ours, theirs in names:
        state = {re.sub(ours, theirs, key): value for key, value in state.items()}
    return state


BLOCKS = ((r"^layer(\d)", r"_stage.\1"), (r"\.conv(\d)", r"._conv\1"), ("^fc", "_top"))


def test_other_names_are_matched_by_order(resnet: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "model.pth"
    counts = {key for key in resnet.state_dict() if key.endswith("num_batches_tracked")}
    state = {key: value for key, value in resnet.state_dict().items() if key not in counts}
    torch.save(renamed(state, *BLOCKS), file)
    assert "are not those of 'resnet18'" in refused(file, "resnet18")
    foreign = load_foreign(f"order:{file}", "resnet18", 64)
    assert foreign.left_out == ("_top.weight", "_top.bias")
    assert_is(foreign, pooled(resnet))


def test_an_order_that_tells_too_little_is_refused(resnet: nn.Module, tmp_path: Path) -> None:
    """Of two modules of the same shapes that are called by words, either may be the other."""
    file, state = tmp_path / "model.pth", resnet.state_dict()
    by_order = Path(f"order:{file}")
    for names, problem in (
        ((r"layer1\.0\.conv1", "layer1.0.first"), r"first and conv2 of layer1.0 have the same"),
        ((r"layer1\.0\.bn1", "layer1.0.bn3"), r"bn3 and bn2 of layer1.0 have the same shapes"),
        ((r"bn1\.running_mean", "bn1.scale"), r"bn1.scale \(64,\) stands where bn1.running_mean"),
    ):
        torch.save(renamed(state, names), file)
        assert re.search(problem, refused(by_order, "resnet18"))
    torch.save(state | {"more.weight": torch.zeros(2, 2)}, file)
    assert "only a classifier may come behind" in refused(by_order, "resnet18")
    torch.save({key: state[key] for key in reversed(state)}, file)
    assert "stands where conv1.weight (64, 3, 7, 7) belongs" in refused(by_order, "resnet18")
    torch.save(state, file)
    assert "if the architecture is named" in refused(by_order)
    save_file(state, tmp_path / "model.safetensors")
    assert "keeps no order" in refused(Path(f"order:{tmp_path}/model.safetensors"), "resnet18")


# --------------------------------------------------------------------------------- failures


def refused(file: Path, name: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load_foreign(file, name, 32)
    return str(caught.value)


def test_weights_that_do_not_fit(resnet: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "model.pth"
    state = dict(resnet.state_dict())
    torch.save(state, file)
    message = refused(file, "resnet50")
    assert "are not those of 'resnet50'" in message
    assert re.search(r"keys that it wants: layer1\.0\.bn3\.bias, .*, … \(\d+ in all\)", message)
    assert (
        "keys of another shape: layer1.0.conv1.weight (64, 64, 3, 3) for (64, 64, 1, 1)" in message
    )
    assert "timm or torchvision" in message
    assert "Did you mean 'resnet18'" in refused(file, "resnet81")

    missing = {key: value for key, value in state.items() if key != "layer3.1.bn2.running_var"}
    torch.save(missing, file)
    assert "keys that it wants: layer3.1.bn2.running_var. " in refused(file)

    torch.save(state | {"layer3.1.se.weight": torch.zeros(2)}, file)
    assert "keys that the encoder lacks: layer3.1.se.weight. " in refused(file)

    torch.save(state | {"layer3.1.bn2.weight": torch.zeros(2)}, file)
    assert "another shape: layer3.1.bn2.weight (2,) for (256,)" in refused(file)

    wide = state | {"conv1.weight": torch.zeros(128, 3, 7, 7)}
    torch.save(wide, file)
    assert "another shape: conv1.weight (128, 3, 7, 7) for (64, 3, 7, 7)" in refused(file)


def test_weights_that_are_no_numbers(resnet: nn.Module, tmp_path: Path) -> None:
    state = deepcopy(resnet).state_dict()
    state["layer1.0.bn1.running_var"][0] = math.inf
    torch.save(state, tmp_path / "net.pth")
    assert "net.pth holds NaN or infinite weights in 1 of" in refused(tmp_path / "net.pth")
    state["fc.weight"][0] = math.nan  # left out
    state["layer1.0.bn1.running_var"][0] = 1
    torch.save(state, tmp_path / "net.pth")
    load_foreign(tmp_path / "net.pth")


def test_unknown_layouts(resnet: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "model.pth"
    content = lightly_moco(resnet)
    content["state_dict"]["decoder.weight"] = torch.zeros(2)
    torch.save(content, file)
    message = refused(file)
    assert "layout of lightly, but decoder.weight belong neither to the encoder" in message
    for unknown, found in (
        ({"epoch": 3, "weights": {}}, "It holds epoch, weights. Layouts tried: VISSL, MMSelfSup"),
        ([resnet.state_dict()], "It holds a list"),
        (3, "It holds a int"),
        ({}, "It holds nothing"),
    ):
        torch.save(unknown, file)
        assert found in refused(file)
    torch.save({"a.weight": torch.zeros(2)}, file)
    assert "they begin with a.weight; give its timm or torchvision name" in refused(file)
    torch.save({"module.a": torch.zeros(2), "a": torch.zeros(2)}, file)
    assert "differ only by `module.`" in refused(file)


class Code:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_is_refused_and_not_run(resnet: nn.Module, tmp_path: Path, zipped: bool) -> None:
    file, made = tmp_path / "model.pth", tmp_path / "made"
    content = {"state_dict": resnet.state_dict(), "args": Code(made)}
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    message = refused(file)
    assert "posix.mkdir" in message
    assert "write its weights alone" in message
    assert not made.exists()


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: {"state_dict": net.state_dict(),
                                                               "args": os.mkdir}])  # fmt: skip
def test_a_file_that_holds_code_becomes_weights_by_the_line_that_is_advised(
    resnet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(wrap(resnet), "model.pth")
    *_, line = refused(Path("model.pth")).partition("write its weights alone: ")
    exec(line, {"torch": torch, "FILE": "model.pth"})
    assert_is(load_foreign("weights.pth", size=64), pooled(resnet))


def test_arguments_and_numbers_are_no_code(resnet: nn.Module, tmp_path: Path) -> None:
    kept = {
        "args": Namespace(lr=np.float32(0.1), depths=np.arange(3), best=np.int64(3)),
        "state_dict": resnet.state_dict(),
    }
    torch.save(kept, tmp_path / "model.pth")
    assert load_foreign(tmp_path / "model.pth", size=32).encoder.dim == 512


def test_damaged_files(resnet: nn.Module, tmp_path: Path) -> None:
    torch.save(resnet.state_dict(), tmp_path / "whole.pth")
    save_file(resnet.state_dict(), tmp_path / "whole.safetensors")
    for suffix in ("pth", "safetensors"):
        whole = (tmp_path / f"whole.{suffix}").read_bytes()
        for part in (b"", whole[:100], whole[: len(whole) // 2], whole[:-10], b"\xff" * 64):
            (tmp_path / f"part.{suffix}").write_bytes(part)
            assert "not a readable" in refused(tmp_path / f"part.{suffix}")
    assert "no checkpoint at" in refused(tmp_path / "none.pth")


# -------------------------------------------------------------------- tensors of other kinds

ODD: dict[str, Callable[[torch.Tensor], Any]] = {
    "sparse": lambda tensor: torch.zeros(tensor.shape).to_sparse(),
    "compressed": lambda tensor: torch.zeros(3, 3).to_sparse_csr(),
    "quantized": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "nested": lambda tensor: torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)]),
    "meta": lambda tensor: tensor.to("meta"),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "truth": lambda tensor: tensor.bool(),
    "whole numbers": lambda tensor: tensor.long(),
    "eight bits": lambda tensor: tensor.to(torch.float8_e4m3fn),
    "empty": lambda tensor: torch.zeros(0),
    "empty in all dimensions": lambda tensor: torch.zeros([0] * tensor.ndim),
    "one number": lambda tensor: torch.zeros(()),
    "overlapping and huge": lambda tensor: torch.zeros(()).expand([10**4] * tensor.ndim),
    "an array": lambda tensor: np.zeros(3),
}


@cache
def expanded_vit() -> State:
    with torch.device("meta"):
        model = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    return {key: torch.ones(()).expand(tensor.shape) for key, tensor in model.state_dict().items()}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    "key", ["conv1.weight", "cls_token", "patch_embed.proj.weight", "pos_embed"]
)
def test_what_is_no_plain_tensor_is_one_line(key: str, kind: str, tmp_path: Path) -> None:
    state = under("", other()) if key == "conv1.weight" else expanded_vit()
    odd = {**state, key: ODD[kind](state[key].contiguous())}
    torch.save(odd, tmp_path / "odd.pth")
    with pytest.raises(UserError, match=r"odd\.pth") as caught:
        load_foreign(tmp_path / "odd.pth")
    assert "\n" not in str(caught.value)
