"""Encoders that other projects trained, read from their checkpoints.

A checkpoint is recognised by its keys; `LAYOUTS` has one row for each way of writing one. Nothing
in a file is executed, and nothing is loaded in part: every key of the encoder must fit in name and
shape, and only the known heads beside it are left out.

The encoder normalises by ImageNet's mean and standard deviation. All these projects train with
them, except solo-learn on CIFAR and STL-10 and some weights of timm (those from CLIP, and those of
the first ViTs, for example). A file does not say which it was, nor anything else that has no
weights: the stride of a 3x3 stem is taken to be 1 and the pooling after it to be absent, as on
CIFAR; activations and strides are those of the architecture of that name.
"""

import json
import re
from argparse import Namespace
from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.models.encoders import Encoder, EncoderConfig, read_safetensors


class Layout(NamedTuple):
    """How one project writes a checkpoint; keys are read without `module.` and `_orig_mod.`.

    Attributes:
        name: Of the project.
        places: Where the state dict lies in the file, joined by dots; "" is the file itself, for
            those who saved the weights alone.
        prefix: What the keys of the encoder begin with.
        beside: What the keys of everything else begin with; they are left out.
        needs: Some key must begin with each of these, to tell projects with one prefix apart.
        padding: Of the convolution of a small stem.
        sine_heads: Attention heads of its tiny and small ViTs with fixed sine positions.
    """

    name: str
    places: tuple[str, ...]
    prefix: str
    beside: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    padding: int = 1
    sine_heads: int | None = None


# What stands beside the encoder, over all methods of a project.
SOLO_LEARN = (
    "classifier.", "projector.", "predictor.", "head.", "prototypes", "queue", "momentum_",
    "dino_loss_func.",
)  # fmt: skip
LIGHTLY = (
    "projection_head", "prediction_head", "backbone_momentum.", "momentum_backbone.", "prototypes",
    "queue", "criterion.", "online_classifier.", "student_", "teacher_", "head.", "fc.",
)  # fmt: skip
MMSELFSUP = (
    "neck.", "head.", "encoder_q.", "encoder_k.", "queue", "online_net.", "target_net.",
    "predictor.", "momentum_encoder.", "data_preprocessor.",
)  # fmt: skip

# The first row that fits is taken, so a row that needs more stands above one that needs less.
LAYOUTS = (
    Layout("VISSL", ("classy_state_dict.base_model.model.trunk", ""), "_feature_blocks."),
    Layout("MMSelfSup", ("state_dict", ""), "backbone.", MMSELFSUP, ("neck.",)),
    Layout("MoCo v1 or v2", ("state_dict", ""), "encoder_q.", ("encoder_k.", "queue")),
    Layout(
        "MoCo v3", ("state_dict", ""), "base_encoder.", ("momentum_encoder.", "predictor."),
        sine_heads=12,
    ),
    Layout(
        "solo-learn", ("state_dict", ""), "backbone.", SOLO_LEARN, ("classifier.", "projector."),
        padding=2, sine_heads=12,
    ),
    Layout(
        "solo-learn, its DINO", ("state_dict", ""), "backbone.", SOLO_LEARN,
        ("classifier.", "momentum_head."), padding=2, sine_heads=12,
    ),
    Layout(
        "solo-learn, its first versions", ("state_dict", ""), "encoder.", SOLO_LEARN,
        ("classifier.", "projector."), padding=2, sine_heads=12,
    ),
    Layout("SimSiam", ("state_dict", ""), "encoder.", ("predictor.",), ("predictor.",)),
    Layout("DINO", ("teacher",), "backbone.", ("head.",)),
    Layout(
        "BYOL-pytorch", ("state_dict", "model", ""), "online_encoder.net.",
        ("net.", "online_encoder.projector.", "online_predictor.", "target_encoder."),
    ),
    Layout(
        "VICReg or Barlow Twins", ("model", ""), "backbone.", ("projector.", "bn."), ("projector.",)
    ),
    Layout("lightly", ("state_dict", ""), "backbone.", LIGHTLY),
    Layout("lightly, with a teacher", ("state_dict", ""), "teacher_backbone.", LIGHTLY),
    Layout(
        "SwAV", ("state_dict", ""), "", ("projection_head.", "prototypes."),
        ("projection_head.", "prototypes."),
    ),
    Layout(
        "timm or torchvision",
        ("state_dict_ema", "model_ema", "state_dict", "model", "model_state_dict", ""), "",
    ),
)  # fmt: skip

# Inside the encoder: the classifier, in whose place MoCo and SimSiam have their projector.
CLASSIFIERS = ("fc.", "head.", "heads.", "head_dist.", "classifier.", "last_linear.", "mask_token")

# Children of a ResNet by their place in `nn.Sequential(*resnet.children())`: torchvision's, and
# that of lightly's own, which has no modules for what has no weights.
CHILDREN = (
    {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"},
    {"0": "conv1", "1": "bn1", "2": "layer1", "3": "layer2", "4": "layer3", "5": "layer4"},
)

# Blocks of the four layers, whether they are bottlenecks, channels out of and into the 3x3
# convolution of the first.
RESNETS: dict[tuple[tuple[int, ...], bool, tuple[int, ...]], str] = {
    ((2, 2, 2, 2), False, (64, 64)): "resnet18",
    ((3, 4, 6, 3), False, (64, 64)): "resnet34",
    ((3, 4, 6, 3), True, (64, 64)): "resnet50",
    ((3, 4, 23, 3), True, (64, 64)): "resnet101",
    ((3, 8, 36, 3), True, (64, 64)): "resnet152",
    ((3, 4, 6, 3), True, (128, 4)): "resnext50_32x4d",
    ((3, 4, 23, 3), True, (256, 8)): "resnext101_32x8d",
    ((3, 4, 23, 3), True, (256, 4)): "resnext101_64x4d",
    ((3, 4, 6, 3), True, (128, 128)): "wide_resnet50_2",
    ((3, 4, 23, 3), True, (128, 128)): "wide_resnet101_2",
}

# Dimensions and blocks. The size of the patches and LayerScale (DINOv2) are options.
VITS = {
    (192, 12): "timm:vit_tiny_patch16_224",
    (384, 12): "timm:vit_small_patch16_224",
    (768, 12): "timm:vit_base_patch16_224",
    (1024, 24): "timm:vit_large_patch16_224",
}


class Foreign(NamedTuple):
    """An encoder of another project, the layout of its checkpoint, and the keys left out of it."""

    encoder: Encoder
    layout: str
    left_out: tuple[str, ...]


def load_foreign(path: str | Path, name: str | None = None, size: int | None = None) -> Foreign:
    """Read an encoder from a checkpoint that another project wrote.

    Args:
        path: A file of `torch.save` or a `.safetensors`.
        name: A timm or torchvision name, as in `EncoderConfig`. If not given it is inferred: for
            ResNets, ResNeXts and wide ResNets of torchvision, and for ViTs of timm (tiny, small,
            base and large, with a class token).
        size: Side of the views in pixels; 224 if not given, 32 with a 3x3 stem, and that of
            pretraining for a file of `mast export`. Position embeddings of a ViT for another
            size are interpolated.

    Returns:
        The encoder in evaluation mode, on the CPU, which takes images (B, 3, H, W) in [0, 1]; the
        name of the layout; the keys that were left out. The padding of solo-learn's small stem
        is set on the encoder itself, not in its configuration: `save_encoder` would lose it.

    Raises:
        UserError: No such file, a damaged one, one that holds code, an unknown layout or
            architecture, or weights that do not fit the architecture.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no checkpoint at {path}")
    if path.suffix == ".safetensors":
        content, header = read_safetensors(path)
    else:
        content, header = _read_torch(path), {}
    layout, state, beside = _recognise(path, content)
    tensors = _with_names(state)
    config, size = _architecture(path, layout, tensors, name, header, size)
    with torch.random.fork_rng(devices=[]):  # the first weights are drawn, only to be replaced
        encoder = Encoder(config, size).eval()
    if config.stem == "small":
        encoder.model.conv1.padding = (layout.padding, layout.padding)
    left_out = _fill(path, layout, encoder, tensors)
    return Foreign(encoder, layout.name, (*(layout.prefix + key for key in left_out), *beside))


def is_foreign(path: Path) -> bool:
    """Whether a file was written by another project than this one."""
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors":
        return path.is_file()
    try:
        with safe_open(path, framework="pt") as archive:
            return "mast" not in (archive.metadata() or {})
    except (SafetensorError, OSError):
        return False


# ---------------------------------------------------------------------------------- files


def _inert() -> list[Any]:
    """Classes without behaviour that projects keep beside weights: arguments and numbers."""
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    kinds = ("bool", "int32", "int64", "float16", "float32", "float64")
    return [
        Namespace,
        np.ndarray,
        np.dtype,
        *(type(np.dtype(kind)) for kind in kinds),
        *((scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
        *((array, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    ]


def _read_torch(path: Path) -> Any:
    """The content of a file of `torch.save`, of which nothing is executed."""
    try:
        with torch.serialization.safe_globals(_inert()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        refused = re.search(r"(?:GLOBAL|function|class) ([\w.]+\.\w+)", str(error))
        if refused is None:
            raise UserError(f"{path} is not a readable checkpoint: {_first(error)}") from error
        raise UserError(
            f"{path} holds more than weights: reading it would run {refused[1]}, which is "
            "never done here. Where you trust the file, write its weights alone: "
            "torch.save(torch.load(FILE, weights_only=False)['state_dict'], 'weights.pth')"
        ) from error
    except Exception as error:  # RuntimeError, EOFError, KeyError, …: whatever the damage leads to
        raise UserError(
            f"{path} is not a readable checkpoint ({type(error).__name__}: {_first(error)})"
        ) from error


def _first(error: Exception) -> str:
    return (str(error).splitlines() or ["nothing in it"])[0]


# ---------------------------------------------------------------------------------- layouts


def _recognise(path: Path, content: Any) -> tuple[Layout, dict[str, Tensor], tuple[str, ...]]:
    """The first layout that fits, the encoder's tensors by their keys in it, keys left out."""
    for layout in LAYOUTS:
        for place in layout.places:
            state = _state(path, content, place)
            expected = (layout.prefix, *layout.needs)
            if not all(any(key.startswith(text) for key in state) for text in expected):
                continue
            beside = tuple(
                key
                for key in state
                if key.startswith(layout.beside)
                and not (layout.prefix and key.startswith(layout.prefix))
            )
            of_encoder = {
                key.removeprefix(layout.prefix): value
                for key, value in state.items()
                if key.startswith(layout.prefix) and key not in beside
            }
            others = state.keys() - {layout.prefix + key for key in of_encoder} - set(beside)
            if others:
                raise UserError(
                    f"{path} has the layout of {layout.name}, but {_listed(others)} belong neither "
                    f"to the encoder ({layout.prefix}…) nor to its known heads"
                )
            return layout, of_encoder, beside
    found = _listed(content) if isinstance(content, Mapping) else f"a {type(content).__name__}"
    raise UserError(
        f"{path} has no known layout. It holds {found}. Layouts tried: "
        f"{', '.join(layout.name for layout in LAYOUTS)}"
    )


def _state(path: Path, content: Any, place: str) -> dict[str, Tensor]:
    """The state dict at a place, without the marks of wrappers; empty if there is none."""
    for step in place.split(".") if place else ():
        content = content.get(step) if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()
    ):
        return {}
    state = {
        ".".join(part for part in key.split(".") if part not in ("module", "_orig_mod")): value
        for key, value in content.items()
    }
    if len(state) < len(content):
        raise UserError(f"{path} has keys that differ only by `module.` or `_orig_mod.`")
    return state


def _with_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name the children of a ResNet that was wrapped as an `nn.Sequential`."""
    for names in CHILDREN:
        if {key.split(".")[0] for key in state} == names.keys():
            return {
                f"{names[child]}.{rest}".replace(".shortcut.", ".downsample."): value
                for key, value in state.items()
                for child, _, rest in [key.partition(".")]
            }
    return state


# ------------------------------------------------------------------------------ architectures


def _architecture(
    path: Path,
    layout: Layout,
    tensors: dict[str, Tensor],
    name: str | None,
    header: dict[str, str],
    size: int | None,
) -> tuple[EncoderConfig, int]:
    """Which encoder has these weights, and the side of its views."""
    config = EncoderConfig(name or "", stem="standard")
    exported = _exported(path, header)
    if exported and name is None:
        config.name, config.options = exported["architecture"], exported["options"]
    if not config.name:
        config.name, config.options = _infer(path, layout, tensors)
    stem = tensors.get("conv1.weight")
    if stem is not None and stem.shape[2:] == (3, 3) and _is_resnet(tensors):
        config.stem, config.stem_stride = "small", exported.get("stride", 1)
        size = size or exported.get("size", 32)
    size = size or exported.get("size", 224)
    config.options |= _positions(layout, tensors, size)
    return config, size


def _exported(path: Path, header: dict[str, str]) -> dict[str, Any]:
    """What `mast export` wrote into the header of its file; nothing for any other file."""
    if not {"architecture", "options", "stem"} <= header.keys():
        return {}
    try:
        stem, options = json.loads(header["stem"]), json.loads(header["options"])
        return {
            "architecture": header["architecture"],
            "options": dict(options),
            "size": int(stem["size"]),
            "stride": stem["stride"] or (1 if stem["size"] <= 32 else 2),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: its header is not one of `mast export`: {error}") from error


def _infer(path: Path, layout: Layout, tensors: dict[str, Tensor]) -> tuple[str, dict[str, Any]]:
    """Name and options of a ResNet or a ViT, from the shapes of its weights."""
    name: str | None = None
    options: dict[str, Any] = {}
    if _is_resnet(tensors):
        blocks = tuple(_count(tensors, f"layer{layer}.") for layer in (1, 2, 3, 4))
        first = tensors["layer1.0.conv2.weight"]
        bottleneck = "layer1.0.conv3.weight" in tensors
        name = RESNETS.get((blocks, bottleneck, tuple(first.shape[:2])))
    elif "cls_token" in tensors and "patch_embed.proj.weight" in tensors:
        patches = tensors["patch_embed.proj.weight"]
        name = VITS.get((patches.shape[0], _count(tensors, "blocks.")))
        if patches.shape[-1] != 16:
            options["patch_size"] = patches.shape[-1]
        if "blocks.0.ls1.gamma" in tensors:
            options["init_values"] = 1.0  # any number: the file has the scales
        if name and patches.shape[0] < 768 and _has_sines(tensors) and not layout.sine_heads:
            name = None  # MoCo v3 has 12 heads, others 3 or 6, and no weight tells
    if name is None:
        raise UserError(
            f"{path} has the layout of {layout.name}, but its weights do not tell the "
            f"architecture: they begin with {_listed(tensors)}. Give its timm or torchvision name "
            "(mast evaluate NAME --weights FILE)"
        )
    return name, options


def _positions(layout: Layout, tensors: dict[str, Tensor], size: int) -> dict[str, Any]:
    """Options of a timm ViT that its position embeddings ask for."""
    positions, patches = tensors.get("pos_embed"), tensors.get("patch_embed.proj.weight")
    if positions is None or positions.ndim != 3 or patches is None or patches.ndim != 4:
        return {}
    dim, _, _, side = patches.shape
    options: dict[str, Any] = {}
    trained = isqrt(positions.shape[1]) * side  # the class token makes no square
    if trained != size:
        if size % side:
            raise UserError(f"size {size} is no multiple of the patches' {side} pixels")
        options |= {"img_size": trained, "dynamic_img_size": True}
    if layout.sine_heads and dim < 768 and _has_sines(tensors):
        options["num_heads"] = layout.sine_heads
    return options


def _is_resnet(tensors: dict[str, Tensor]) -> bool:
    parts = {key.split(".")[0] for key in tensors if not key.startswith(CLASSIFIERS)}
    return parts == set(CHILDREN[0].values()) and "layer1.0.conv2.weight" in tensors


def _has_sines(tensors: dict[str, Tensor]) -> bool:
    """Whether positions are fixed sines: the class token then has none, exactly."""
    return "pos_embed" in tensors and not tensors["pos_embed"][0, 0].any()


def _count(tensors: dict[str, Tensor], prefix: str) -> int:
    return len({key[len(prefix) :].split(".")[0] for key in tensors if key.startswith(prefix)})


# ---------------------------------------------------------------------------------- weights


def _fill(path: Path, layout: Layout, encoder: Encoder, tensors: dict[str, Tensor]) -> list[str]:
    """Load the weights, all of them; returns the keys of the classifier, which are not loaded."""
    wanted = encoder.model.state_dict()
    left_out = [key for key in tensors if key not in wanted and key.startswith(CLASSIFIERS)]
    problems = {
        "keys that the encoder lacks": tensors.keys() - wanted.keys() - set(left_out),
        "keys that it wants": {
            # Counts of batches: PyTorch before 0.4.1 did not keep them, and nothing here uses them.
            key
            for key in wanted.keys() - tensors.keys()
            if not key.endswith("num_batches_tracked")
        },
        "keys of another shape": {
            f"{key} {tuple(tensors[key].shape)} for {tuple(wanted[key].shape)}"
            for key in wanted.keys() & tensors.keys()
            if wanted[key].shape != tensors[key].shape
        },
    }
    if any(problems.values()):
        raise UserError(
            f"{path} has the layout of {layout.name}, but its weights are not those of "
            f"{encoder.config.name!r}: "
            + "; ".join(f"{what}: {_listed(keys)}" for what, keys in problems.items() if keys)
            + ". If it is another architecture, give its timm or torchvision name "
            "(mast evaluate NAME --weights FILE). Layouts tried: "
            + ", ".join(tried.name for tried in LAYOUTS[: LAYOUTS.index(layout) + 1])
        )
    encoder.model.load_state_dict(wanted | {key: tensors[key] for key in wanted.keys() & tensors})
    return left_out


def _listed(keys: Any, most: int = 5) -> str:
    """The first keys in order, and how many there are."""
    names = sorted(str(key) for key in keys)
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return (", ".join(names[:most]) or "nothing") + more
