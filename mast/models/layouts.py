"""How other projects name their weights: a table of prefixes, and matching by order.

The encoder's keys are those behind a layout's prefix. All else in a file (heads, other networks,
the optimizer) is left out; whether the encoder is whole is for `mast.models.foreign` to check.
"""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mast.core.errors import UserError

BY_ORDER = "order:"  # before the name of a file whose weights are matched by order
COUNTS = "num_batches_tracked"  # which not every program keeps, and nothing here uses


class KeyLayout(NamedTuple):
    """How one project names the weights of its encoder.

    Attributes:
        name: Of the project.
        prefix: What the keys of the encoder begin with.
        needs: Some key must begin with each of these, too.
        padding: Of the convolution of a small stem.
        sine_heads: Attention heads of its tiny and small ViTs with fixed sine positions.
    """

    name: str
    prefix: str
    needs: tuple[str, ...] = ()
    padding: Literal[1, 2] = 1
    sine_heads: int | None = None


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
    KeyLayout("timm, torchvision or SwAV", ""),
)
# Where a file has its state dict; "" is the file itself. The first that is one is taken.
PLACES = (
    "classy_state_dict.base_model.model.trunk", "teacher", "state_dict_ema", "model_ema",
    "state_dict", "model", "model_state_dict", "",
)  # fmt: skip

# Heads among the encoder's own keys: MoCo and SimSiam have their projector in place of `fc`.
CLASSIFIERS = (
    "fc.", "head.", "heads.", "head_dist.", "classifier.", "last_linear.", "mask_token",
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
        dense = tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)
        if type(tensor) not in (Tensor, nn.Parameter) or not dense or tensor.is_meta:
            raise UserError(f"{key} is no dense tensor: write dense floating-point weights")
    return state


def _unwrapped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights without the modules that hold them all, up to `features`, as some models have it."""
    parts = [key.split(".") for key in state]
    common = parts[0][: _common(parts)] if len(parts) > 1 else []
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


# ------------------------------------------------------------------------- matched by order


def checkpoint_of(weights: str | Path) -> tuple[Path, bool]:
    """The file that a user named, and whether its weights are to be matched by their order."""
    text = str(weights)
    return Path(text.removeprefix(BY_ORDER)), text.startswith(BY_ORDER)


def matched_by_order(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Weights under the names of a model that has the same shapes in the same order.

    Only their order distinguishes modules of the same shapes next to each other, so they must be
    numbered in that order, in the file and in the model, as `bn1` and `bn2` are, or be called the
    same in both.

    Args:
        tensors: In the order of their modules; a classifier's weight and bias may come last.
        expected: The model's weights, perhaps on the meta device.

    Returns:
        The tensors that are the model's, by its names, and the keys of the classifier.
    """
    in_file, in_model = (
        [key for key in keys if not key.endswith(COUNTS)] for keys in (tensors, expected)
    )
    for theirs, ours in zip(in_file, in_model, strict=False):
        shapes = tuple(tensors[theirs].shape), tuple(expected[ours].shape)
        if shapes[0] != shapes[1] or theirs.rpartition(".")[2] != ours.rpartition(".")[2]:
            raise UserError(
                f"its weights are not those of the encoder in the same order: {theirs} {shapes[0]} "
                f"stands where {ours} {shapes[1]} belongs"
            )
    count = len(in_model)
    head = [tensors[key] for key in in_file[count:]]
    is_head = [tensor.ndim for tensor in head] in ([], [2], [2, 1])
    if len(in_file) < count or not is_head or len({len(tensor) for tensor in head}) > 1:
        raise UserError(
            f"it has {len(in_file)} weights, the encoder has {count}, and only a classifier "
            "may come behind them"
        )
    for first, second in _exchanged(in_file[:count], in_model, expected):
        raise UserError(
            f"{first} and {second} have the same shapes, and no numbers that say which comes "
            "first: their order does not tell them apart"
        )
    fitting = {ours: tensors[theirs] for theirs, ours in zip(in_file, in_model, strict=False)}
    return fitting, tuple(in_file[count:])


def _exchanged(
    in_file: Sequence[str], in_model: Sequence[str], tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, str]]:
    """Modules of the file in neighbouring runs of modules, which may stand the other way round.

    Exchanging two neighbouring runs keeps the sequence of shapes only where both repeat one run
    (Lyndon and Schützenberger), so that modules of one run and of the next are to be told apart:
    by numbers, or as file and model call them the same. The runs are of children of one module.
    """
    shapes: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
    for theirs, ours in zip(in_file, in_model, strict=True):
        pair = theirs.rpartition(".")[0], ours.rpartition(".")[0]
        shapes[pair].append(tuple(tensors[ours].shape))
    pairs, kinds = list(shapes), list(shapes.values())
    places = [ours.split(".") for _, ours in pairs]
    for period in range(1, len(pairs) // 2 + 1):
        alike = 0  # modules in a row that are as the ones a period before
        for at in range(period, len(pairs)):
            alike = alike + 1 if kinds[at] == kinds[at - period] else 0
            begin, middle, end = (at + 1 - of * period for of in (2, 1, 0))
            if alike < period:
                continue
            child = _common(places[begin:end]) + 1
            if places[middle - 1][:child] == places[middle][:child]:
                continue
            for (first, ours_first), (second, ours_second) in zip(
                pairs[begin:middle], pairs[middle:end], strict=True
            ):
                if not (
                    (_numbered([first, second]) and _numbered([ours_first, ours_second]))
                    or _words(first, second) == _words(ours_first, ours_second)
                ):
                    yield first, second


def _common(names: Sequence[list[str]]) -> int:
    """How many modules names have in common."""
    return len(os.path.commonprefix(list(names)))  # noqa: RUF071


def _numbered(names: Sequence[str]) -> bool:
    """Whether names differ by their numbers alone, which grow."""
    numbers = [[int(number) for number in re.findall(r"\d+", name)] for name in names]
    return len({re.sub(r"\d+", "0", name) for name in names}) == 1 and numbers == sorted(numbers)


def _words(*names: str) -> list[list[str]]:
    """What of names comes behind the modules that they have in common, letters and numbers."""
    parts = [name.split(".") for name in names]
    return [re.findall(r"[^\W_]+", ".".join(part[_common(parts) :]).lower()) for part in parts]
