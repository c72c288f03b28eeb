"""Check arguments of public functions against their types, with one-line errors.

Names of tensors end in their axes, like `images_BCHW`; an axis must have the same size in all.
Nothing heavy is imported; tensors are recognized only once PyTorch is loaded.
"""

import functools
import inspect
import numbers
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from mast.core.errors import UserError, unknown

P = ParamSpec("P")
T = TypeVar("T")

NAMES = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a mapping",
    Mapping: "a mapping", type(None): "none",
}  # fmt: skip
LARGEST = 2**63  # upper bound of whole numbers, here and in PyTorch
SHOWN = 80  # longest value in a message, in characters
_type_hints = functools.cache(get_type_hints)


def as_list(argument: Any) -> list[Any]:
    """A list; a single value, such as `analyses="masks"`, becomes a list of one."""
    single = isinstance(argument, str | Path) or not isinstance(argument, Iterable)
    return [argument] if single else list(argument)


# ----------------------------------------------------------------------------------- types


def members(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def choices(hint: Any) -> tuple[Any, ...]:
    """The values of a Literal type; none for other types."""
    return next((get_args(each) for each in members(hint) if get_origin(each) is Literal), ())


def is_list(hint: Any) -> bool:
    """Whether a type holds several values of a kind."""
    return any(get_origin(each) in (tuple, list, Sequence) for each in members(hint))


def in_words(hint: Any) -> str:
    """A type in words, such as "a whole number or none"."""
    if len(members(hint)) > 1:
        return " or ".join(dict.fromkeys(map(in_words, members(hint))))
    if choices(hint):
        return " or ".join(map(str, choices(hint)))
    if is_list(hint):
        return f"a list, each {in_words(get_args(hint)[0])}" if get_args(hint) else "a list"
    kind = get_origin(hint) or hint
    return NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def in_short(value: Any) -> str:
    """A value as short text on one line."""
    if _is_tensor(value):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "a number beyond 2^63"  # Python refuses to write very long ones
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def _is_tensor(value: Any) -> bool:
    return (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits a type; text also counts as a path, a whole number as a number."""
    kind, inner = get_origin(hint), get_args(hint)
    if len(members(hint)) > 1:
        return any(fits(value, member) for member in members(hint))
    if kind is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if kind is type:
        return isinstance(value, type) and issubclass(value, inner[0])
    if kind in (list, tuple, Sequence):
        if not isinstance(value, list | tuple):
            return False
        if kind is tuple and inner[-1] is not ...:
            return len(value) == len(inner) and all(map(fits, value, inner))
        return all(fits(item, inner[0]) for item in value)
    if kind in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, inner[0]) and fits(item, inner[1]) for key, item in value.items()
        )
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and type(value) is not bool
    if hint is Path:
        return isinstance(value, str | Path)
    kind = kind or hint
    return hint in (Any, None) or not isinstance(kind, type) or isinstance(value, kind)


def argument(value: Any, hint: Any, name: str) -> Any:
    """Convert a value to its type; `name` is for the error. The type None accepts anything.

    Accepts NumPy numbers as numbers, paths of other libraries as paths, and iterables as
    lists.
    """
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise UserError(f"{name}: expected -2^63 to below 2^63, got {in_short(value)}")
    for plain in (value, _plain(value)):
        if fits(plain, hint):
            return plain
    names = [choice for choice in choices(hint) if isinstance(choice, str)]
    if names and isinstance(value, str):
        raise unknown(f"value of {name}", value, names)
    raise UserError(f"{name}: expected {in_words(hint)}, got {in_short(value)}")


def _plain(value: Any) -> Any:
    """The plain Python equivalent of a value, if there is one."""
    if isinstance(value, bool | str | bytes | bytearray | Mapping) or _is_tensor(value):
        return value
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, os.PathLike):
        return Path(os.fsdecode(value))
    try:
        return [item if isinstance(item, Iterable) else _plain(item) for item in value]
    except TypeError:  # also of an array without dimensions
        return bool(value) if type(value).__name__ == "bool" else value  # NumPy's


def check_fields(instance: Any, prefix: str = "") -> None:
    """Refuse a dataclass with a field of the wrong type; nested fields have dotted names."""
    hints = _type_hints(type(instance))  # type: ignore[arg-type]
    for name in (field.name for field in fields(instance)):
        value = argument(getattr(instance, name), hints[name], prefix + name)
        if is_dataclass(value):
            check_fields(value, f"{prefix}{name}.")


# ---------------------------------------------------------------------------------- functions


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Types of a function's parameters, in order; the type of its result may be unresolved."""
    plain = inspect.unwrap(function)
    own = {name: hint for name, hint in plain.__annotations__.items() if name != "return"}
    known = get_type_hints(types.SimpleNamespace(__annotations__=own), plain.__globals__)
    return {name: known.get(name) for name in inspect.signature(plain).parameters}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to check argument types, the shapes of tensors, and that `seed` is 0 or
    more.
    """
    hints: dict[str, Any] = {}
    torch = sys.modules.get("torch")  # without it a function is not compiled

    @functools.wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch is not None and torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not hints:
            hints.update(hints_of(function))
        values = dict(zip(hints, args, strict=False)) | kwargs
        if len(values) < len(args) + len(kwargs):  # too many, or one twice: Python's error names it
            return function(*args, **kwargs)
        plain = {name: argument(value, hints.get(name), name) for name, value in values.items()}
        _check_shapes(plain)
        if isinstance(seed := plain.get("seed"), int) and seed < 0:
            raise UserError(f"seed: expected 0 or more, got {seed}")
        return function(**plain)  # type: ignore[call-arg]

    return checking


def _check_shapes(values: Mapping[str, Any]) -> None:
    """Refuse tensors whose axes differ from those in their names, or in size between tensors."""
    known: dict[str, tuple[int, str]] = {}  # size of each axis, and its first tensor
    for name, value in values.items():
        axes = name.rpartition("_")[2]
        if not (axes.isupper() and _is_tensor(value)):
            continue
        if str(value.layout) != "torch.strided":
            raise UserError(f"{name}: expected a dense tensor, got {value.layout}")
        shape, expected = tuple(value.shape), f"{name}: expected shape ({', '.join(axes)})"
        if len(shape) != len(axes):
            raise UserError(f"{expected}, got {shape}")
        for axis, size in zip(axes, shape, strict=True):
            here = (size, f", as in {name} of {shape}")
            wanted, where = (int(axis), "") if axis.isdigit() else known.setdefault(axis, here)
            if size != wanted:
                raise UserError(f"{expected} with {axis} = {wanted}{where}, got {shape}")
