"""Many strings in two arrays."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final, overload

import numpy as np

_AT_ONCE = 65_536  # names that are decoded at a time


@final
class Names(Sequence[str]):
    """Strings that are decoded when they are read.

    Args:
        text: uint8, all names one after the other, in UTF-8; other bytes are kept as Python does.
        end_N: int64, where each ends.
    """

    def __init__(self, text: np.ndarray, end_N: np.ndarray) -> None:
        self.text = text
        self.end_N = end_N

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        text, ends = bytearray(), []
        for name in names:
            text += name.encode("utf-8", "surrogateescape")
            ends.append(len(text))
        return cls(np.frombuffer(text, np.uint8), np.array(ends, np.int64))

    @classmethod
    def joined(cls, parts: "Sequence[Names]") -> "Names":
        begin_P = np.cumsum([0, *(len(part.text) for part in parts)])
        ends = [part.end_N + begin for part, begin in zip(parts, begin_P[:-1], strict=True)]
        return cls(np.concatenate([part.text for part in parts]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.end_N)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = operator.index(index)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError(f"{index} of {len(self)} names")
        begin = int(self.end_N[at - 1]) if at else 0
        return _string(self.text[begin : int(self.end_N[at])].tobytes())

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _AT_ONCE):
            ends = self.end_N[first : first + _AT_ONCE].tolist()
            begin = start = int(self.end_N[first - 1]) if first else 0
            text = self.text[start : ends[-1]].tobytes()
            for end in ends:
                yield _string(text[begin - start : end - start])
                begin = end

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def _string(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
