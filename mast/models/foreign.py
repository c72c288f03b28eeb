"""Encoders that other projects trained, read from their checkpoints.

A checkpoint is recognised by its keys (`mast.models.layouts`). Nothing in a file is executed, and
nothing is loaded in part: every key of the encoder must fit in name and shape, and only the known
heads beside it are left out.

A file does not say how images were normalized. A tag in the name that is given does, or what the
Hub has beside the file, such as `config.json`. Otherwise weights in timm's own layout, or matched
by order, take the normalization of timm's default weights for the architecture, and all others
ImageNet's mean and standard deviation, with which these projects train, except solo-learn on CIFAR
and STL-10. For other images than RGB it is 0.5 and 0.25. Nor does a file say anything else that has
no weights: the stride of a 3x3 stem is taken to be 1 and the pooling after it to be absent, as on
CIFAR; activations and strides are the architecture's.
"""

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from math import isqrt
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.core.files import parse_json
from mast.core.reading import MOST_CHANNELS, read_reading
from mast.core.seeds import drawing
from mast.core.tensors import check_finite, read_header, read_metadata, read_tensors
from mast.models.encoders import (
    IMAGENET,
    Encoder,
    EncoderConfig,
    mismatches,
    read_normalization,
    usual_normalization,
    weightless_model,
)
from mast.models.layouts import (
    BY_ORDER,
    CHILDREN,
    CLASSIFIERS,
    LAYOUTS,
    KeyLayout,
    checkpoint_of,
    first_keys,
    matched_by_order,
    recognise,
    with_names,
)
from mast.models.pretrained import named_weights, normalization_beside, normalization_of, size_of

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

NAME_IT = (
    "give its timm or torchvision name beside the file: NAME --weights FILE, --encoder of "
    "mast pretrain or --encoder of mast plan"
)
MOMENTS = ("mean", "std")  # in the header of an exported file

# Dimensions and blocks. The size of the patches and LayerScale (DINOv2) are options.
VITS = {
    (192, 12): "timm:vit_tiny_patch16_224",
    (384, 12): "timm:vit_small_patch16_224",
    (768, 12): "timm:vit_base_patch16_224",
    (1024, 24): "timm:vit_large_patch16_224",
}


class Foreign(NamedTuple):
    """An encoder of another project, the layout of its checkpoint, and the keys left out of it.

    `beside` is the file next to it that says how images are normalized.
    """

    encoder: Encoder
    layout: str
    left_out: tuple[str, ...]
    beside: Path | None = None


def load_foreign(
    path: str | Path,
    name: str | None = None,
    size: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Foreign:
    """Read an encoder from a checkpoint that another project wrote.

    Args:
        path: A file of `torch.save` or a `.safetensors`. With `order:` before it, weights of other
            names are matched by their order and shapes (`mast.models.layouts`).
        name: A timm or torchvision name, as in `EncoderConfig`, perhaps with a tag. If not given it
            is inferred: for ResNets, ResNeXts and wide ResNets of torchvision, and for ViTs of timm
            (tiny, small, base and large, with a class token).
        options: Of the architecture of that name, as in `EncoderConfig`.
        size: Side of the views in pixels; if not given that of the weights that a tag names, 32
            with a 3x3 stem, that of pretraining for a file of `mast export`, and else 224. Position
            embeddings of a ViT for another size are interpolated.

    Returns:
        The encoder in evaluation mode, on the CPU, which takes images (B, channels, H, W) in
        [0, 1]; the name of the layout; the keys that were left out.

    Raises:
        UserError: No such file, a damaged one, one that holds code, an unknown layout or
            architecture, or weights that do not fit the architecture.
    """
    path, by_order = checkpoint_of(path)
    if not path.is_file():
        raise UserError(f"no checkpoint at {path}")
    if by_order and (name is None or path.suffix == ".safetensors"):
        raise UserError(
            f"{BY_ORDER}{path}: weights are matched by their order if the architecture is named, "
            "and if torch.save wrote them: a .safetensors keeps no order"
        )
    if path.suffix == ".safetensors":
        content, header = read_tensors(path)
    else:
        content, header = _read_torch(path), {}
    layout, state, left_out = recognise(path, content)
    _check_plain(path, state)
    tensors = with_names(state)
    exported = _exported(path, header)
    config, size = _architecture(path, layout, tensors, name, options, exported, size)
    tagged = name is not None and named_weights(name) is not None
    beside, said = (None, None) if exported or tagged else normalization_beside(path)
    normalization = (
        exported.get("normalization")
        or said
        or (normalization_of(name) if name and layout.prefix == "" else IMAGENET)
    )
    config = replace(config, **normalization._asdict())
    try:
        expected = weightless_model(config, size).state_dict()
        if (channels := _channels(config, expected, tensors)) != config.channels:
            config = replace(config, **usual_normalization(channels)._asdict())
            expected = weightless_model(config, size).state_dict()
        if by_order:
            tensors, classifier = matched_by_order(tensors, expected)
            left_out += classifier
        head = _classifier_keys(layout, config.name, expected, tensors)
        if config.stem == "small":
            config = replace(config, stem_padding=exported.get("padding", layout.padding))
        with drawing():  # the first weights are drawn, only to be replaced
            encoder = Encoder(config, size).eval()
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    weights = {key: tensors[key] for key in expected.keys() & tensors}
    check_finite(path, weights)
    encoder.reading = exported.get("reading")
    encoder.model.load_state_dict(encoder.model.state_dict() | weights)
    left_out = (*(layout.prefix + key for key in head), *left_out)
    return Foreign(encoder, layout.name, left_out, beside)


def describes_itself(path: Path) -> bool:
    """Whether a checkpoint of another project says of what it is made: those of `mast export`."""
    return path.suffix == ".safetensors" and bool(_exported(path, read_header(path) or {}))


def is_foreign(path: Path) -> bool:
    """Whether a file was written by another project than this one."""
    if path.suffix != ".safetensors":
        return os.path.isfile(path)  # also of what is too long for a name
    header = read_header(path)
    try:
        return header is not None and not {"encoder", "classifier"} & read_metadata(header).keys()
    except ValueError:  # ours, and damaged
        return False


# ---------------------------------------------------------------------------------- files


def _safe_classes() -> list[Any]:
    """Classes without behaviour that projects store with weights: arguments and numbers."""
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
        with torch.serialization.safe_globals(_safe_classes()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        refused = re.search(r"(?:GLOBAL|function|class) ([\w.]+\.\w+)", str(error))
        if refused is None:
            raise UserError(
                f"{path} is not a readable checkpoint: it is no archive or pickle of weights"
            ) from error  # PyTorch's text advises to run what is in it
        raise UserError(
            f"{path} holds more than weights: reading it would run {refused[1]}, which is "
            "never done here. Where you trust the file, write its weights alone: "
            "x = torch.load(FILE, weights_only=False); torch.save(x.state_dict() if hasattr(x, "
            "'state_dict') else x['state_dict'], 'weights.pth')"
        ) from error
    except Exception as error:  # damage leads to errors of any kind
        reason = (str(error).splitlines() or ["nothing in it"])[0]
        raise UserError(
            f"{path} is not a readable checkpoint ({type(error).__name__}: {reason})"
        ) from error


def _check_plain(path: Path, state: dict[str, Tensor]) -> None:
    """Refuse tensors that are no plain rows of numbers in memory."""
    for key, tensor in state.items():
        kind = type(tensor).__name__
        plain = kind in ("Tensor", "Parameter") and tensor.layout is torch.strided
        if not plain or tensor.is_quantized or tensor.is_nested or tensor.device.type != "cpu":
            what = "quantized" if tensor.is_quantized else f"{tensor.layout} on {tensor.device}"
            raise UserError(
                f"{path} holds {key} as a {kind} that is {what}: expected plain tensors, write "
                "dense floating-point weights"
            )


# ------------------------------------------------------------------------------ architectures


def _architecture(
    path: Path,
    layout: KeyLayout,
    tensors: dict[str, Tensor],
    name: str | None,
    options: Mapping[str, Any] | None,
    exported: dict[str, Any],
    size: int | None,
) -> tuple[EncoderConfig, int]:
    """Which encoder has these weights, and the side of its views."""
    config = EncoderConfig(name or "", dict(options or {}), stem="standard")
    if exported and name is None:
        config.name, config.options = exported["architecture"], exported["options"]
    if not config.name:
        config.name, config.options = _infer(path, layout, tensors)
    stem = tensors.get("conv1.weight")
    if stem is not None and stem.shape[2:] == (3, 3) and _is_resnet(tensors):
        config.stem, config.stem_stride = "small", exported.get("stride", 1)
        size = size or exported.get("size", 32)
    size = size or exported.get("size") or size_of(config.name) or 224
    config.options |= _positions(layout, tensors, size)
    return config, size


def _exported(path: Path, header: dict[str, str]) -> dict[str, Any]:
    """What `mast export` wrote into the header of its file; nothing for any other file."""
    if not {"architecture", "options", "stem", *MOMENTS} <= header.keys():
        return {}
    try:
        stem, options = parse_json(header["stem"]), parse_json(header["options"])
        normalization = read_normalization(*(parse_json(header[key]) for key in MOMENTS))
        reading = parse_json(header.get("reading", "null"))
        if reading is not None:
            reading = read_reading(reading, len(normalization.mean))
        return {
            "architecture": header["architecture"],
            "options": dict(options),
            "size": int(stem["size"]),
            "padding": {0: 0, 1: 1, 2: 2}[stem.get("padding", 1)],
            "stride": {1: 1, 2: 2, None: 1 if stem["size"] <= 32 else 2}[stem["stride"]],
            "normalization": normalization,
            "reading": reading,
        }
    except (ValueError, RecursionError, KeyError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: its header is not one of `mast export`: {error}") from error


def _infer(path: Path, layout: KeyLayout, tensors: dict[str, Tensor]) -> tuple[str, dict[str, Any]]:
    """Name and options of a ResNet or a ViT, from the shapes of its weights."""
    name: str | None = None
    options: dict[str, Any] = {}
    if _is_resnet(tensors):
        blocks = tuple(_count(tensors, f"layer{layer}.") for layer in (1, 2, 3, 4))
        first = tensors["layer1.0.conv2.weight"]
        bottleneck = "layer1.0.conv3.weight" in tensors
        name = RESNETS.get((blocks, bottleneck, tuple(first.shape[:2])))
    elif "cls_token" in tensors and (patches := _patches(tensors)) is not None:
        name = VITS.get((patches.shape[0], _count(tensors, "blocks.")))
        if patches.shape[-1] != 16:
            options["patch_size"] = patches.shape[-1]
        if "blocks.0.ls1.gamma" in tensors:
            options["init_values"] = 1.0  # any number: the file has the scales
        if "reg_token" in tensors:
            options |= {"reg_tokens": tensors["reg_token"].shape[1], "no_embed_class": True}
        if name and patches.shape[0] < 768 and _has_sines(tensors) and not layout.sine_heads:
            name = None  # MoCo v3 has 12 heads, others 3 or 6, and no weight tells
    if name is None:
        raise UserError(
            f"{path} has the layout of {layout.name}, but its weights do not tell the "
            f"architecture: they begin with {first_keys(tensors)}; {NAME_IT}"
        )
    return name, options


def _positions(layout: KeyLayout, tensors: dict[str, Tensor], size: int) -> dict[str, Any]:
    """Options of a timm ViT that its position embeddings ask for."""
    positions, patches = tensors.get("pos_embed"), _patches(tensors)
    if positions is None or positions.ndim != 3 or patches is None:
        return {}
    dim, _, _, side = patches.shape
    options: dict[str, Any] = {}
    trained = isqrt(positions.shape[1]) * side  # the class token makes no square
    if trained != size:
        if over := size % side:
            raise UserError(
                f"size {size} is no multiple of patches of {side}: give {size - over + side}"
            )
        options |= {"img_size": trained, "dynamic_img_size": True}
    if layout.sine_heads and dim < 768 and _has_sines(tensors):
        options["num_heads"] = layout.sine_heads
    return options


def _channels(
    config: EncoderConfig, expected: dict[str, Tensor], tensors: dict[str, Tensor]
) -> int:
    """Of the images, as the first layer of the weights has them."""
    key = next((key for key, weight in expected.items() if weight.ndim == 4), "")
    first = tensors.get(key)
    if first is None or first.ndim != 4 or expected[key].shape[1] != config.channels:
        return config.channels
    return first.shape[1] if 1 <= first.shape[1] <= MOST_CHANNELS else config.channels


def _is_resnet(tensors: dict[str, Tensor]) -> bool:
    parts = {key.split(".")[0] for key in tensors if not key.startswith(CLASSIFIERS)}
    return parts == set(CHILDREN[0].values()) and "layer1.0.conv2.weight" in tensors


def _patches(tensors: dict[str, Tensor]) -> Tensor | None:
    """The weights that embed a ViT's patches, if they are such."""
    patches = tensors.get("patch_embed.proj.weight")
    return patches if patches is not None and patches.ndim == 4 and patches.numel() else None


def _has_sines(tensors: dict[str, Tensor]) -> bool:
    """Whether positions are fixed sines: the class token then has none, exactly."""
    positions = tensors.get("pos_embed")
    return positions is not None and positions.ndim == 3 and not positions[:1, :1].any()


def _count(tensors: dict[str, Tensor], prefix: str) -> int:
    return len({key[len(prefix) :].split(".")[0] for key in tensors if key.startswith(prefix)})


# ---------------------------------------------------------------------------------- weights


def _classifier_keys(
    layout: KeyLayout,
    name: str,
    expected: dict[str, Tensor],
    tensors: dict[str, Tensor],
) -> list[str]:
    """The keys of the classifier, which are not loaded; all others must fit the encoder."""
    head = [key for key in tensors if key not in expected and key.startswith(CLASSIFIERS)]
    loaded = {key: tensors[key] for key in tensors.keys() - set(head)}
    problems = mismatches(loaded, expected)
    if any(problems.values()):
        raise UserError(
            f"it has the layout of {layout.name}, but its weights are not those of {name!r}: "
            + "; ".join(
                f"{problem}: {first_keys(keys)}" for problem, keys in problems.items() if keys
            )
            + f". If it is another architecture: {NAME_IT}. If only the names differ: give "
            f"{BY_ORDER}FILE, to match them by order and shape. Layouts tried: "
            + ", ".join(tried.name for tried in LAYOUTS[: LAYOUTS.index(layout) + 1])
        )
    return head
