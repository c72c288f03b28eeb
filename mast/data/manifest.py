"""What a canvas file holds, as arrays of a mapped file: opening it is reading it once.

Legend: N images, or names.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final, overload

import numpy as np
import torch

from mast.core.errors import UserError
from mast.core.reading import Reading, read_reading
from mast.core.tensors import read_header, read_metadata, read_tensors, write_tensors

_AT_ONCE = 65_536  # names that are made on the way through all of them


@final
class Names(Sequence[str]):
    """Strings that are made when they are asked for.

    Args:
        text: uint8, all names one behind the other, UTF-8; what is none is kept as Python does.
        end_N: int64, where each ends.
    """

    def __init__(self, text: np.ndarray, end_N: np.ndarray) -> None:
        self.text = text
        self.end_N = end_N

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        """Of strings."""
        text, ends = bytearray(), []
        for name in names:
            text += name.encode("utf-8", "surrogateescape")
            ends.append(len(text))
        return cls(np.frombuffer(text, np.uint8), np.array(ends, np.int64))

    @classmethod
    def joined(cls, parts: "Sequence[Names]") -> "Names":
        """Of several, one behind the other."""
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


_OF = {
    "kept": torch.int64, "height": torch.int32, "width": torch.int32,
    "aspect": torch.float32, "checksum": torch.int32, "names": torch.uint8, "ends": torch.int64,
}  # fmt: skip


@final
@dataclass(frozen=True)
class Manifest:
    """What a canvas file holds; labels and names of classes are the source's.

    Attributes:
        version: Layout and way of making.
        source: Fingerprint of the source when this was built.
        side: Of a square with as many pixels as a canvas may have.
        content: Hash of the canvases and labels.
        kept_N: int64, index in the source of each canvas.
        size_N2: int64, height and width of each canvas in pixels.
        aspect_N: float32, width / height of each original.
        checksum_N: uint32, CRC-32 of each canvas.
        identifiers: Name of each canvas.
        skipped: Reason by name of every broken file.
        stacks: Names of files with several pages or frames, of which the first is here.
        reading: How files were read.
    """

    version: int
    source: str
    side: int
    content: str
    kept_N: np.ndarray
    size_N2: np.ndarray
    aspect_N: np.ndarray
    checksum_N: np.ndarray
    identifiers: Names
    skipped: Mapping[str, str]
    stacks: Sequence[str] = ()
    reading: Reading = field(default_factory=Reading)

    def write(self, path: Path) -> None:
        """Write it, atomically, with a digest.

        Raises:
            UserError: As `write_atomically`.
        """
        tensors = {
            "kept": torch.from_numpy(self.kept_N),
            "height": torch.from_numpy(self.size_N2[:, 0].astype(np.int32)),
            "width": torch.from_numpy(self.size_N2[:, 1].astype(np.int32)),
            "aspect": torch.from_numpy(self.aspect_N),
            "checksum": torch.from_numpy(self.checksum_N.view(np.int32)),
            "names": torch.from_numpy(self.identifiers.text),
            "ends": torch.from_numpy(self.identifiers.end_N),
        }
        described = {
            "version": self.version,
            "source": self.source,
            "side": self.side,
            "content": self.content,
            "skipped": dict(self.skipped),
            "stacks": list(self.stacks),
            "reading": asdict(self.reading),
        }
        write_tensors(path, tensors, described)

    @staticmethod
    def version_of(path: Path) -> Any:
        """What the header of a file says, unverified; None where it says nothing."""
        try:
            return read_metadata(read_header(path) or {}).get("version")
        except ValueError:
            return None

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """Read what was written.

        Raises:
            UserError: It is no manifest, or is not as it was written.
        """
        tensors, header = read_tensors(path, "it is built anew")
        said = read_metadata(header)
        try:
            if any(
                tensors[name].shape[1:] or tensors[name].dtype != of for name, of in _OF.items()
            ):
                raise ValueError("other arrays than are written")
            names = Names(tensors["names"].numpy(), tensors["ends"].numpy())
            size_N2 = np.stack([tensors["height"], tensors["width"]], axis=1).astype(np.int64)
            manifest = cls(
                int(said["version"]), str(said["source"]), int(said["side"]), str(said["content"]),
                tensors["kept"].numpy(), size_N2, tensors["aspect"].numpy(),
                tensors["checksum"].numpy().view(np.uint32),
                names, dict(said["skipped"]), tuple(said["stacks"]),
                read_reading(said["reading"]),
            )  # fmt: skip
            manifest._check()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{path} is damaged, it is no manifest: it is built anew") from error
        return manifest

    def _check(self) -> None:
        """Refuses what was written whole, but cannot be what a canvas file holds."""
        kept_N, aspect_N, end_N = self.kept_N, self.aspect_N, self.identifiers.end_N
        if not (
            self.side > 0
            and (self.size_N2 > 0).all()
            and len(kept_N) == len(self.size_N2) == len(aspect_N) == len(self.checksum_N)
            and len(kept_N) == len(end_N) > 0
            and kept_N[0] >= 0
            and (kept_N[1:] > kept_N[:-1]).all()
            and ((aspect_N > 0) & np.isfinite(aspect_N)).all()
            and end_N[0] >= 0
            and (end_N[1:] >= end_N[:-1]).all()
            and end_N[-1] == len(self.identifiers.text)
            and all(isinstance(said, str) for said in (*self.skipped.values(), *self.stacks))
        ):
            raise ValueError("arrays that do not fit each other")
