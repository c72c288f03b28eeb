"""How other projects name their weights: a table of prefixes.

The encoder's keys are those behind a layout's prefix. All else in a file (heads, other networks,
the optimizer) is left out; whether the encoder is whole is for `mast.models.foreign` to check.
"""

import itertools
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from mast.core.errors import UserError

COUNTS = "num_batches_tracked"  # which not every program keeps, and nothing here uses


class KeyLayout(NamedTuple):
    """How one project names the weights of its encoder.

    Attributes:
        name: Of the project.
        prefix: What the keys of the encoder begin with.
        needs: Some key must begin with each of these, too.
        padding: Of the convolution of a small stem.
        sine_heads: Attention heads of its tiny and small ViTs with fixed sine positions.
        ordered: Whether its weights have names of their own, in the order of timm's.
    """

    name: str
    prefix: str
    needs: tuple[str, ...] = ()
    padding: Literal[1, 2] = 1
    sine_heads: int | None = None
    ordered: bool = False


# The first row that fits is taken, so a row that needs more comes before one that needs less.
LAYOUTS = (
    KeyLayout("VISSL", "_feature_blocks."),
    KeyLayout("MMSelfSup", "backbone.", ("neck.",)),
    KeyLayout("MoCo v1 or v2", "encoder_q."),
    KeyLayout("MoCo v3", "base_encoder.", sine_heads=12),
    KeyLayout("BYOL-pytorch", "online_encoder.net."),
    KeyLayout("solo-learn", "backbone.", ("classifier.", "projector."), 2, 12),
    KeyLayout("solo-learn's DINO", "backbone.", ("classifier.", "momentum_head."), 2, 12),
    KeyLayout("solo-learn's first versions", "encoder.", ("classifier.", "projector."), 2, 12),
    KeyLayout("SimSiam", "encoder.", ("predictor.",)),
    KeyLayout("VICReg, Barlow Twins, DINO, lightly or stable-pretraining", "backbone."),
    KeyLayout("lightly with a teacher", "teacher_backbone."),
    KeyLayout("EfficientNet-PyTorch", "", ("_conv_stem.", "_blocks."), ordered=True),
    KeyLayout("timm, torchvision or SwAV", ""),
)
# Where a file has its state dict; "" is the file itself. The first that is one is taken.
PLACES = (
    "classy_state_dict.base_model.model.trunk", "teacher", "state_dict_ema", "model_ema",
    "state_dict", "model", "model_state_dict", "",
)  # fmt: skip

# Heads among the encoder's own keys: MoCo and SimSiam have their projector in place of `fc`.
CLASSIFIERS = (
    "fc.", "_fc.", "head.", "heads.", "head_dist.", "classifier.", "last_linear.", "mask_token",
    "projection_head.", "prototypes.",
)  # fmt: skip

# Children of a ResNet by their place in `nn.Sequential(*resnet.children())`: torchvision's, and
# that of lightly's own, which has no modules for what has no weights.
CHILDREN = (
    {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"},
    {"0": "conv1", "1": "bn1", "2": "layer1", "3": "layer2", "4": "layer3", "5": "layer4"},
)


def recognise(content: Any) -> tuple[KeyLayout, dict[str, Tensor], tuple[str, ...]]:
    """The layout of a file's content, the encoder's tensors by torchvision's or timm's names, and
    the keys that are left out.
    """
    state = next(filter(None, (_state_dict(content, place) for place in PLACES)), None)
    if state is None:
        held = first_keys(content) if isinstance(content, Mapping) else type(content).__name__
        raise UserError(f"expected a state dict, perhaps in {', '.join(PLACES[1:-1])}, got {held}")
    layout = _first_layout(state)
    if not layout.prefix:
        state = _unwrapped(state)
        layout = _first_layout(state)
    prefix = layout.prefix
    left_out = tuple(key for key in state if not key.startswith(prefix))
    encoder = {key.removeprefix(prefix): of for key, of in state.items() if key.startswith(prefix)}
    return layout, _renamed(_unwrapped(encoder)), left_out


def _first_layout(keys: Collection[str]) -> KeyLayout:
    return next(
        row
        for row in LAYOUTS
        if all(any(key.startswith(text) for key in keys) for text in (row.prefix, *row.needs))
    )


def _state_dict(content: Any, place: str) -> dict[str, Tensor] | None:
    """The state dict at a place, without the marks of wrappers."""
    for step in place.split(".") if place else ():
        content = content.get(step) if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()
    ):
        return None
    state = {
        ".".join(part for part in key.split(".") if part not in ("module", "_orig_mod")): value
        for key, value in content.items()
    }
    if len(state) < len(content):
        raise UserError("some keys differ only by `module.` or `_orig_mod.`")
    for key, tensor in state.items():
        if tensor.layout is not torch.strided or tensor.is_meta:
            raise UserError(f"{key} is no dense tensor: write dense floating-point weights")
    return state


def _unwrapped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights without the modules that hold them all, up to `features`, as some models have it."""
    parts = [key.split(".") for key in state]
    common = os.path.commonprefix(parts) if len(parts) > 1 else []  # noqa: RUF071
    outer = ".".join([*itertools.takewhile("features".__ne__, common), ""])
    return {key.removeprefix(outer): tensor for key, tensor in state.items()}


def _renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names of torchvision or timm for a ResNet in an `nn.Sequential` and DINOv2's registers.

    With registers, timm has no position of the class token: it is added to the token.
    """
    if {"register_tokens", "cls_token", "pos_embed"} <= state.keys():
        positions = state["pos_embed"]
        state["reg_token"] = state.pop("register_tokens")
        state["cls_token"] = state["cls_token"] + positions[:, :1]
        state["pos_embed"] = positions[:, 1:]
    for names in CHILDREN:
        if {key.partition(".")[0] for key in state} == names.keys():
            return {
                f"{names[child]}.{rest}".replace(".shortcut.", ".downsample."): value
                for key, value in state.items()
                for child, _, rest in [key.partition(".")]
            }
    return state


def first_keys(keys: Iterable[Any], most: int = 5) -> str:
    """The first keys in order, and how many there are."""
    names = sorted(map(str, keys))
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return (", ".join(names[:most]) or "nothing") + more


def in_order(tensors: dict[str, Tensor], expected: Iterable[str]) -> dict[str, Tensor]:
    """Weights under the names of a model whose modules come in the same order, as many as it has.

    Counts of batches are left out.
    """
    theirs = [key for key in tensors if not key.endswith(COUNTS)]
    names = dict(zip(theirs, (key for key in expected if not key.endswith(COUNTS)), strict=False))
    return {names.get(key, key): tensors[key] for key in theirs}
