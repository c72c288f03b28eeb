"""Every method, in every variant, keeps the contract of `Method`."""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import BATCH, CLASSES, DIM, ENCODER, OPERATORS, SIZE, build_method, encoder_of, make_views
from torch import Tensor

import mast
from mast.augment import Views
from mast.config import build_method as build_run
from mast.core.checkpoint import load_checkpoint, save_checkpoint
from mast.core.errors import UserError
from mast.core.optim import OptimizerConfig, make_optimizer
from mast.methods import Embedding, EnsembleOutput, Mast, MastC, Method
from mast.methods.clsa import CLSA
from mast.methods.infomin import InfoMin
from mast.methods.looc import LooC
from mast.methods.prcl import PrCL, PrCLConfig
from mast.models import Encoder, EncoderConfig
from mast.models.encoders import usual_normalization

PROPERTIES = ("color", "position", "orientation")
BLOCKS = {"exempt": PROPERTIES, "exempt_share": 0.2}
DISTANCE = {"compare": "distance", "predict_from": ("block", "representation")}
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "contrast": ("mast_c", {}, BLOCKS),
    "contrast, depths": ("mast_c", {}, {"predict_from": ("depths",)}),
    "distance": ("mast_c", {}, BLOCKS | DISTANCE),
    "distance, block": ("mast_c", {}, DISTANCE | {"predict_from": ("block",)}),
    "mast": ("mast", {}, {}),
    "mast, after": ("mast", {"pool": "after"}, {"uncertainty": False}),
    "mast, average": ("mast", {"pool": "average"}, {"kl_weight": 25.0}),
    "printed": ("mast", {}, {"printed": True}),
    "handcrafted": ("mast", {}, {"masks": "handcrafted"}),
    "no masks": ("mast", {}, {"masks": "none", "uncertainty": False}),
    "vicreg": ("vicreg", {}, {}),
    "augself": ("vicreg", {}, {"predicted": PROPERTIES}),
    "simclr": ("simclr", {}, {}),
    "moco v2": ("moco_v2", {}, {"queue": 3 * BATCH - 2}),
    "moco v2, augself": ("moco_v2", {}, {"queue": BATCH, "predicted": PROPERTIES}),
    "moco v3": ("moco_v3", {}, {}),
    "simsiam": ("simsiam", {}, {}),
    "vi-simsiam": ("vi_simsiam", {}, {}),
    "byol": ("byol", {}, {}),
    "barlow twins": ("barlow_twins", {}, {}),
    "swav": ("swav", {}, {"prototypes": 12, "queue": 2 * BATCH, "frozen": 0.0}),
    "dino": ("dino", {}, {"prototypes": 12, "frozen": 0.0}),
    "looc": ("looc", {}, {"queue": BATCH + 3}),
    "clsa": ("clsa", {}, {"queue": BATCH + 3}),
    "infomin": ("infomin", {}, {"queue": BATCH + 3}),
    "obow": ("obow", {}, {"words": 2 * BATCH + 3}),
    "mae": ("mae", {}, {"dim": 16, "depth": 1, "heads": 2}),
    "prcl": ("prcl", {}, {"queue": BATCH + 3}),
    "supervised": ("supervised", {}, {"classes": CLASSES}),
}
HEADS = {  # over the representation, by variant
    **dict.fromkeys(("augself", "moco v2, augself"), "prediction"),
    **dict.fromkeys(("contrast", "distance"), "predictions.representation"),
}
OPTIMIZERS = {
    "lars": OptimizerConfig("lars", lr=0.3, weight_decay=1e-4, trust=0.02),
    "adamw": OptimizerConfig("adamw", lr=0.01, weight_decay=1e-2),
}


def build(variant: str, seed: int = 0) -> Method:
    """A variant over the tiny encoder."""
    return build_method(*VARIANTS[variant], seed)


def views_for(method: Method, seed: int) -> Views:
    """As many views as a method takes."""
    if isinstance(method, LooC):
        return make_views(seed, 2 + len(method.config.preserved))
    return make_views(seed, 3 if isinstance(method, CLSA | InfoMin) else 2)


def step(method: Method, optimizer: torch.optim.Optimizer, seed: int) -> dict[str, Tensor]:
    optimizer.zero_grad(set_to_none=True)
    output = method(views_for(method, seed), 0.5)
    output["loss"].backward()
    optimizer.step()
    method.after_step(0.5)
    return output


def optimizer_of(method: Method, name: str) -> torch.optim.Optimizer:
    return make_optimizer(method.parameter_groups(), OPTIMIZERS[name], BATCH)


OF_EVERY_METHOD = {method: variant for variant, (method, *_) in reversed(VARIANTS.items())}


@pytest.mark.parametrize("variant", OF_EVERY_METHOD.values())
def test_images_of_five_channels(variant: str) -> None:
    """Two steps that reach every channel of the first layer, and an embedding."""
    name, projector, options = VARIANTS[variant]
    config = replace(encoder_of(name), **usual_normalization(5)._asdict())
    method = build_method(name, projector, options, encoder=config)
    views = views_for(method, 0)
    generator = torch.Generator().manual_seed(1)
    shape = (BATCH, 5, SIZE, SIZE)
    images = [torch.rand(shape, generator=generator) for _ in views.images]
    views = Views(tuple(images), views.records, label_B=views.label_B)
    optimizer = optimizer_of(method, "adamw")
    for _ in range(2):
        optimizer.zero_grad()
        output = method(views, 0.0)
        output["loss"].backward()
        optimizer.step()
        assert bool(output["loss"].isfinite())
    first = next(p for p in method.encoder.parameters() if p.ndim == 4 and p.shape[1] == 5)
    assert first.grad is not None
    assert first.grad.abs().amax(dim=(0, 2, 3)).min() > 0
    assert Embedding(method.eval())(images[0]).shape[0] == BATCH


VIT = {"embed_dim": 24, "depth": 1, "num_heads": 3, "patch_size": 8}
ENCODERS = {
    "resnet": ENCODER,
    "convnext": EncoderConfig("convnext_atto", {"dims": (8, 8, 16, 16), "depths": (1, 1, 1, 1)}),
    "vit": EncoderConfig("vit_tiny_patch16_224", VIT),
    "vit, average": EncoderConfig(  # its last norm is behind the pooling
        "vit_tiny_patch16_224", VIT | {"global_pool": "avg"}
    ),
}


@pytest.mark.parametrize(
    ("of", "pool"), [("mast", "before"), ("mast", "after"), ("mast", "average"), ("mast_c", "")]
)
@pytest.mark.parametrize("name", ENCODERS)
def test_what_requires_a_gradient_gets_one(name: str, of: str, pool: str) -> None:
    """Data-parallel training would stop at the second step."""
    projector = {"pool": pool} if pool else {}
    options = {} if pool else {"predict_from": ("block", "representation")}
    method = build_method(of, projector, options, encoder=ENCODERS[name])
    method(make_views(0), 0.0)["loss"].backward()
    without = [n for n, p in method.named_parameters() if p.requires_grad and p.grad is None]
    assert not without
    frozen = {n for n, p in method.encoder.named_parameters() if not p.requires_grad}
    behind = {"convnext": "model.head.norm", "vit, average": "model.fc_norm"}.get(name)
    if pool in ("average", ""):
        behind = None
    expected = {f"{behind}.weight", f"{behind}.bias"} if behind else set()
    assert frozen == expected


@pytest.mark.parametrize(
    ("variant", "optimizer_name"),
    [*((name, "adamw") for name in VARIANTS), ("mast", "lars"), ("byol", "lars")],
)
def test_steps_and_resumes(variant: str, optimizer_name: str, tmp_path: Path) -> None:
    method = build(variant)
    optimizer = optimizer_of(method, optimizer_name)
    for seed in range(2):
        output = step(method, optimizer, seed)
        assert all(torch.isfinite(value) for value in output.values()), output
        terms = [value for name, value in output.items() if name.startswith("term/")]
        torch.testing.assert_close(sum(terms), output["loss"].detach(), rtol=1e-6, atol=1e-6)
        extra = {name for name in output if not name.startswith(("term/", "stat/"))}
        assert extra == {"loss"}
        assert not any(value.requires_grad for name, value in output.items() if name != "loss")
        figures = method.statistics()
        assert all(n.startswith("stat/") and isinstance(x, float) for n, x in figures.items())
        for name, parameter in method.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, name
            assert torch.isfinite(parameter).all(), name
    save_checkpoint(
        tmp_path / "last.pt", {"method": method.state_dict(), "optimizer": optimizer.state_dict()}
    )
    state = load_checkpoint(tmp_path / "last.pt")
    resumed = build(variant, seed=5)
    resumed.load_state_dict(state["method"])
    resumed_optimizer = optimizer_of(resumed, optimizer_name)
    resumed_optimizer.load_state_dict(state["optimizer"])
    expected, found = step(method, optimizer, 2), step(resumed, resumed_optimizer, 2)
    assert expected.keys() == found.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert all(
        torch.equal(value, resumed.state_dict()[name])
        for name, value in method.state_dict().items()
    )


LAST = {  # by method, a weight through which the loss is computed
    "mast": "projector.mean_head.weight",
    "looc": "projector.heads.2.head.weight",
    "obow": "generator.head.weight",
    "mae": "leave.weight",
    "supervised": "classifier.weight",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_reaches_what_the_loss_depends_on(variant: str) -> None:
    method, name = build(variant), VARIANTS[variant][0]
    method(views_for(method, 0), 0.0)["loss"].backward()
    moved = {
        name
        for name, parameter in method.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().max() > 0
    }
    first = "patch_embed.proj" if name == "mae" else "conv1"
    assert {f"encoder.model.{first}.weight", LAST.get(name, "projector.head.weight")} <= moved
    predicts = variant in ("contrast, depths", "distance, block", *HEADS)
    assert any("prediction" in name and "heads" in name for name in moved) == predicts
    if isinstance(method, Mast):
        assert ("projector.covariance_head.bias" in moved) == method.config.uncertainty
        assert ("masks.logits_DK" in moved) == (method.config.masks == "learned")


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameter_groups(variant: str) -> None:
    method = build(variant)
    names = {id(p): name for name, p in method.named_parameters() if p.requires_grad}
    groups: dict[str, list[str]] = {}
    for group in method.parameter_groups():
        members = [names[id(parameter)] for parameter in group["params"]]
        groups.setdefault(group["name"], []).extend(members)
        assert all(name.startswith(method.steady or "-") == group["steady"] for name in members)
    grouped = [name for members in groups.values() for name in members]
    assert sorted(grouped) == sorted(names.values())
    assert set(groups.get("gates", [])) == {
        name for name in names.values() if name.startswith("masks.") or name.endswith(".power")
    }
    parameters = dict(method.named_parameters())
    assert all(parameters[name].ndim == 1 for name in groups["vectors"])
    assert all(parameters[name].ndim >= 2 for name in groups["weights"])


@pytest.mark.parametrize(
    ("recipe", "objective", "message"),
    [
        ("mast_c5_small", {"prediction": {"weight": -1.0}}, "weight must be 0 or more and finite"),
        ("vicreg5_augself_small", {"prediction": {"hidden": 0}}, "hidden must be 1 or more, got 0"),
        (
            "vicreg5_small",
            {"predicted": ["colour"]},
            r"property that operators destroy 'colour'\. Did",
        ),
        (
            "mast_c5_small",
            {"exempt": ["color", "color"]},
            "a property is named twice: color, color",
        ),
        ("mast_c5_small", {"exempt_share": 1.0}, r"exempt_share must be in \(0, 1\), got 1"),
        ("simclr_small", {"temperature": 0.0}, "temperature must be above 0 and finite, got 0"),
        ("moco_v2_small", {"queue": 0}, "objective.queue must be 1 or more, got 0"),
        ("moco_v2_small", {"hardness": -0.1}, "hardness must be 0 or more and finite, got -0.1"),
        ("byol_small", {"momentum": 1.5}, r"objective.momentum must be in \[0, 1\], got 1.5"),
        ("looc_small", {"preserved": ["hue"]}, "unknown property that operators destroy"),
        ("prcl_small", {"hidden": 0.0}, r"objective.hidden must be in \(0, 1\), got 0"),
        ("simsiam_small", {"projector_layers": 1}, "projector_layers must be 2 to 1000, got 1"),
        (
            "mast_c5_small",
            {"predict_from": "dephts"},
            r"predict_from .dephts.\. Did you mean .depths.",
        ),
        ("mast_c5_small", {"predict_from": "block", "predicted": ["position"]}, "needs an exempt"),
    ],
)
def test_what_cannot_be_is_refused(recipe: str, objective: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        mast.configure(recipe, objective=objective)


@pytest.mark.parametrize(("name", "options"), [("mast", {}), ("obow", {"words": BATCH})])
def test_a_map_may_have_another_width_than_the_representation(
    name: str, options: dict[str, Any]
) -> None:
    encoder = EncoderConfig("timm:mobilenetv3_small_050")
    method = build_method(name, {}, options, encoder=encoder)
    assert (method.encoder.map_dim, method.encoder.dim) == (288, 1024)
    assert torch.isfinite(method(make_views(0), 0.0)["loss"])


def test_without_batchnorm_there_are_no_statistics_to_freeze() -> None:
    with pytest.raises(UserError, match="is for encoders with BatchNorm"):
        build("mae").freeze_statistics()


def test_prcl_needs_a_map_that_fills_the_image() -> None:
    encoder = Encoder(ENCODER, SIZE + 2)
    with pytest.raises(UserError, match=r"'timm:resnet18' has 9 locations over 34 pixels"):
        PrCL(PrCLConfig(), encoder, OPERATORS)
    larger = Views(tuple(torch.rand(2, 3, 64, 64) for _ in range(2)), make_views(0).records)
    with pytest.raises(UserError, match="views of 32 pixels, the run's size, got 64"):
        build_method("prcl", {}, {"queue": BATCH})(larger, 0.0)


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("infomin_small", {"views": "mast5"}, "takes 3 views of an image, got 2: .* infomin"),
        (
            "mast_c5_small",
            {"views": "multicrop"},
            r"MAST-C \(ours\) takes 2 views of an image, got 8: choose",
        ),
        (
            "looc_small",
            {"objective": {"preserved": ["orientation", "color"]}},
            "views that share the",
        ),
    ],
)
def test_a_method_names_the_views_that_it_needs_before_a_run(
    recipe: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = mast.configure(recipe, data="nowhere", out=str(tmp_path / "run"), **changes)
    with pytest.raises(UserError, match=message):
        mast.pretrain(config)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=message):
        build_run(config)


@pytest.mark.parametrize(
    ("recipe", "views", "side"),
    [("infomin_small", "infomin_small", 16), ("swav_small", "dino", 96)],
)
def test_an_encoder_that_cannot_take_a_view_is_named(recipe: str, views: str, side: int) -> None:
    name = "timm:vit_tiny_patch16_224"
    vit = {"encoder": {"name": name}, "views": views}
    with pytest.raises(UserError, match=rf"'{name}' cannot take images of {side} pixels"):
        build_run(mast.configure(recipe, **vit))
    vit["encoder"]["options"] = {"dynamic_img_size": True}
    build_run(mast.configure(recipe, **vit))


def test_a_run_without_a_block_says_so() -> None:
    method = build_method("mast_c", {}, {"exempt": ("parts",), "predicted": ("parts",)})
    assert isinstance(method, MastC)
    assert torch.equal(method.masks(), torch.ones(DIM, len(OPERATORS)))
    output = method(make_views(0), 0.0)
    assert not any("block" in name for name in output)
    text, other = method.warnings({name: value.item() for name, value in output.items()})
    assert other == "parts is not predicted: no operator of the views destroys it"
    assert text.startswith(
        "nothing is exempt: no operator of the views destroys objective.exempt ("
    )


@torch.no_grad()
def test_the_ensemble_of_mast_is_its_masked_embeddings() -> None:
    method = build("distance").eval()
    images_BCHW = make_views(0).images[0]
    mean_BD = method.embed(images_BCHW)
    expected = torch.cat([mean_BD * mask_D for mask_D in method.masks().T], dim=1)
    torch.testing.assert_close(EnsembleOutput(method)(images_BCHW), expected)


@torch.no_grad()
def test_the_ensemble_of_looc_is_what_each_head_keeps() -> None:
    method = build("looc").eval()
    assert isinstance(method, LooC)
    images = make_views(0).images[0]
    ensemble = EnsembleOutput(method)(images)
    representation_BC = method.encoder(images)
    width = ensemble.shape[1] // 3
    for head, part_BH in enumerate(ensemble.split(width, dim=1)):
        first = method.get_submodule(f"projector.heads.{head}.trunk.0")
        expected_BH = (representation_BC @ first.weight.T + first.bias).clamp(min=0)
        torch.testing.assert_close(part_BH, expected_BH)


@pytest.mark.parametrize("variant", VARIANTS)
def test_head_weights_are_those_over_the_representation(variant: str) -> None:
    method = build(variant)
    readings = method.head_weights()
    assert bool(readings) == (variant in HEADS)
    for name, reading_HC in readings.items():
        hidden = method.get_submodule(f"{HEADS[variant]}.heads.{name}.0")
        first_BC = method.encoder(make_views(0).images[0])
        seen_BH = hidden(torch.cat([first_BC, torch.zeros_like(first_BC)], dim=1)) - hidden.bias
        assert torch.allclose(first_BC @ reading_HC.T, seen_BH, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["augself", "no masks"])
def test_where_nothing_is_exempt_nothing_can_be_matched(variant: str) -> None:
    method = build(variant).eval()
    embedding, images_BCHW = Embedding(method), make_views(0).images[0]
    first = embedding.trained_with[0]
    assert torch.equal(embedding(images_BCHW, ignore=first), method.embed(images_BCHW))
    with pytest.raises(UserError, match="nothing can be matched by its embedding"):
        embedding.weights(match=first)
    with pytest.raises(UserError, match="unknown operator or property 'invert'"):
        embedding.weights(ignore="invert")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what the compiler looks at warns
def test_compiled_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured and differentiated as for `torch.compile`; the code it would make is PyTorch's."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    eager, compiled = build("mast"), build("mast")
    compiled.compile_parts()
    losses = [method(make_views(0), 0.0)["loss"] for method in (eager, compiled)]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)
    for loss in losses:
        loss.backward()
    for (name, parameter), other in zip(
        eager.named_parameters(), compiled.parameters(), strict=True
    ):
        torch.testing.assert_close(other.grad, parameter.grad, rtol=1e-3, atol=1e-4, msg=name)
    assert eager.state_dict().keys() == compiled.state_dict().keys()
    copied = copy.deepcopy(compiled.encoder)
    with torch.no_grad():
        next(copied.parameters()).zero_()
    images = make_views(0).images[0]
    assert not torch.equal(copied(images), compiled.encoder(images))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what the compiler looks at warns
@pytest.mark.parametrize(
    ("variant", "heads"), [("distance", 2), ("vicreg", 0), ("contrast", 2), ("mast", 0)]
)
def test_encoder_projector_objective_and_heads_are_a_graph_each(
    variant: str, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(" ".join(str(node.target) for node in graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend, fullgraph=True))
    for each in ("vicreg", variant):  # two runs in one process
        graphs.clear()
        method = build(each)
        method.compile_parts()
        for seed in range(2):
            method(make_views(seed), 0.0)["loss"].backward()
    assert ["conv2d" in graph for graph in graphs] == [True, False, False] + [False] * heads
    assert ["batch_norm" in graph for graph in graphs] == [True, True, False] + [True] * heads


def test_graphs_are_compiled_parts_whose_results_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes: list[str] = []
    begun: list[None] = []
    memory = torch.zeros(())  # which every replay writes again

    def compiled(function: Any, mode: str) -> Any:
        modes.append(mode)
        return function

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(None))
    method = build("vicreg")
    method.compile_parts(graphs=True)
    assert modes == ["reduce-overhead"] * 3
    monkeypatch.setattr(method, "step", lambda *_: {"loss": memory.add_(1.0)})
    losses = [method(make_views(0), 0.0)["loss"] for _ in range(2)]
    assert losses == [1.0, 2.0]
    assert len(begun) == 2
