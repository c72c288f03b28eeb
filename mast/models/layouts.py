"""How other projects name their weights: one row a layout, recognised by the keys.

Weights of names that no layout knows are matched by their order and shapes, or refused.
"""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from mast.core.errors import UserError

BY_ORDER = "order:"  # before the name of a file whose weights are to be matched by their order
COUNTS = "num_batches_tracked"  # which not every program keeps, and nothing here uses


class KeyLayout(NamedTuple):
    """How one project writes a checkpoint; keys are read without `module.` and `_orig_mod.`.

    Attributes:
        name: Of the project.
        places: Where the state dict is in the file, joined by dots; "" is the file itself, for
            those who saved the weights alone.
        prefix: What the keys of the encoder begin with.
        others: What the keys of everything else begin with; they are left out.
        needs: Some key must begin with each of these, to tell projects with one prefix apart.
        padding: Of the convolution of a small stem.
        sine_heads: Attention heads of its tiny and small ViTs with fixed sine positions.
    """

    name: str
    places: tuple[str, ...]
    prefix: str
    others: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    padding: Literal[1, 2] = 1
    sine_heads: int | None = None


# What a checkpoint holds in addition to the encoder, over all methods of a project.
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

# The first row that fits is taken, so a row that needs more comes before one that needs less.
LAYOUTS = (
    KeyLayout("VISSL", ("classy_state_dict.base_model.model.trunk", ""), "_feature_blocks."),
    KeyLayout("MMSelfSup", ("state_dict", ""), "backbone.", MMSELFSUP, ("neck.",)),
    KeyLayout(
        "stable-pretraining", ("state_dict", ""), "backbone.",
        ("projector.", "predictor.", "callbacks_"), ("callbacks_",),
    ),
    KeyLayout("MoCo v1 or v2", ("state_dict", ""), "encoder_q.", ("encoder_k.", "queue")),
    KeyLayout(
        "MoCo v3", ("state_dict", ""), "base_encoder.", ("momentum_encoder.", "predictor."),
        sine_heads=12,
    ),
    KeyLayout(
        "solo-learn", ("state_dict", ""), "backbone.", SOLO_LEARN, ("classifier.", "projector."),
        padding=2, sine_heads=12,
    ),
    KeyLayout(
        "solo-learn, its DINO", ("state_dict", ""), "backbone.", SOLO_LEARN,
        ("classifier.", "momentum_head."), padding=2, sine_heads=12,
    ),
    KeyLayout(
        "solo-learn, its first versions", ("state_dict", ""), "encoder.", SOLO_LEARN,
        ("classifier.", "projector."), padding=2, sine_heads=12,
    ),
    KeyLayout("SimSiam", ("state_dict", ""), "encoder.", ("predictor.",), ("predictor.",)),
    KeyLayout("DINO", ("teacher",), "backbone.", ("head.", "dino_head.", "ibot_head.")),
    KeyLayout(
        "BYOL-pytorch", ("state_dict", "model", ""), "online_encoder.net.",
        ("net.", "online_encoder.projector.", "online_predictor.", "target_encoder."),
    ),
    KeyLayout(
        "VICReg or Barlow Twins", ("model", ""), "backbone.", ("projector.", "bn."), ("projector.",)
    ),
    KeyLayout("lightly", ("state_dict", ""), "backbone.", LIGHTLY),
    KeyLayout("lightly, with a teacher", ("state_dict", ""), "teacher_backbone.", LIGHTLY),
    KeyLayout(
        "SwAV", ("state_dict", ""), "", ("projection_head.", "prototypes."),
        ("projection_head.", "prototypes."),
    ),
    KeyLayout(
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


def recognise(path: Path, content: Any) -> tuple[KeyLayout, dict[str, Tensor], tuple[str, ...]]:
    """The first layout that fits, the encoder's tensors by their keys in it, keys left out."""
    for layout in LAYOUTS:
        for place in layout.places:
            state = _state(path, content, place)
            expected = (layout.prefix, *layout.needs)
            if not all(any(key.startswith(text) for key in state) for text in expected):
                continue
            if layout is LAYOUTS[-1] and (inner := _inner(state)).keys() != state.keys():
                return recognise(path, inner)
            left_out = tuple(
                key
                for key in state
                if key.startswith(layout.others)
                and not (layout.prefix and key.startswith(layout.prefix))
            )
            of_encoder = {
                key.removeprefix(layout.prefix): value
                for key, value in state.items()
                if key.startswith(layout.prefix) and key not in left_out
            }
            unknown = state.keys() - {layout.prefix + key for key in of_encoder} - set(left_out)
            if unknown:
                raise UserError(
                    f"{path} has the layout of {layout.name}, but {first_keys(unknown)} belong "
                    f"neither to the encoder ({layout.prefix}…) nor to its known heads"
                )
            return layout, of_encoder, left_out
    held = first_keys(content) if isinstance(content, Mapping) else f"a {type(content).__name__}"
    raise UserError(
        f"{path} has no known layout. It holds {held}. Layouts tried: "
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


def _inner(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights without the modules that hold them all, up to `features`, as some models have it."""
    parts = [key.split(".") for key in state]
    common = parts[0][: _common(parts)] if len(parts) > 1 else []
    outer = ".".join([*itertools.takewhile("features".__ne__, common), ""])
    return {key.removeprefix(outer): tensor for key, tensor in state.items()}


def with_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as torchvision and timm have them: of ResNets and of DINOv2's ViTs with registers.

    The children of a ResNet that was wrapped as an `nn.Sequential` get their names. With registers,
    timm has no position of the class token: it is added to the token.
    """
    state = _inner(state)
    if {"register_tokens", "cls_token", "pos_embed"} <= state.keys():
        token, positions = state["cls_token"], state["pos_embed"]
        if token.ndim == positions.ndim == 3 and token.shape[2] == positions.shape[2]:
            own = {
                "reg_token": state["register_tokens"],
                "cls_token": token + positions[:, :1],
                "pos_embed": positions[:, 1:],
            }
            return {key: of for key, of in state.items() if key != "register_tokens"} | own
    for names in CHILDREN:
        if {key.split(".")[0] for key in state} == names.keys():
            return {
                f"{names[child]}.{rest}".replace(".shortcut.", ".downsample."): value
                for key, value in state.items()
                for child, _, rest in [key.partition(".")]
            }
    return state


def first_keys(keys: Any, most: int = 5) -> str:
    """The first keys in order, and how many there are."""
    names = sorted(str(key) for key in keys)
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
