"""A folder of images, flat or with one subfolder per class; links to folders are followed once."""

import itertools
import logging
import os
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import final

from mast.core.display import doing
from mast.core.errors import UserError
from mast.core.files import named, read_bytes, special, spelling, state_of
from mast.data.decode import Opened, open_image
from mast.data.formats import ARRAY, DICOM, HEIF, UNREAD, begins_as_image, extensions
from mast.data.source import WHOLE, SetDescription, Source, numbered, part_of, parts_among

# Folders of operating systems: thumbnails, recycle bins, snapshots, recovered files.
_SYSTEM = frozenset(
    ("@eadir", "__macosx", "#recycle", "@recycle", "$recycle.bin", "#snapshot", "lost+found",
     "@recently-snapshot", "system volume information", "network trash folder")
)  # fmt: skip
_TEXTS = ("readme", "license", "licence", "makefile")  # that have no ending


Found = tuple[str, int, int]  # path below the folder, bytes and time of modification in ns


def walk(root: Path) -> tuple[list[Found], list[str]]:
    """Scan a folder at any depth, without hidden files and folders.

    Arrays count as images only if they are the majority. Links are followed last, so that folders
    below `root` keep their own path, and each folder is read once.

    Returns:
        Every image, with size and time -1 if it is no regular file, so that it counts as broken;
        and paths of files of unsupported formats that may be images.
    """
    images, unread, seen = list[Found](), list[str](), set[tuple[int, int]]()
    folders, links = [""], deque[str]()
    with doing("found", unit="images") as work:
        while folders or links:
            work.update(len(images))
            prefix = folders.pop() if folders else links.popleft()
            path = os.path.join(root, prefix)
            below = list[tuple[str, bool]]()
            try:
                status = os.stat(path)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                # One entry at a time, as each caches its file's metadata.
                with os.scandir(path) as entries:
                    for entry in filter(wanted, entries):
                        name = entry.name.lower()
                        if is_folder(entry):
                            below.append((f"{prefix}{entry.name}/", entry.is_symlink()))
                        elif name.endswith(extensions()) or _is_image(entry, name):
                            images.append((prefix + entry.name, *state_of(entry)))
                        elif name.endswith(UNREAD) or not (ending_of(name) or name in _TEXTS):
                            unread.append(prefix + entry.name)
            except OSError as error:
                raise UserError(f"cannot read the folder {path}: {error.strerror}.") from error
            for name, is_link in sorted(below):
                (links if is_link else folders).append(name)
    images.sort()
    arrays = [path for path, _, _ in images if path.lower().endswith(ARRAY)]
    if 2 * len(arrays) <= len(images):
        unread += arrays
        images = [of for of in images if not of[0].lower().endswith(ARRAY)]
    return images, sorted(unread, key=os.path.split)


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_image(entry: os.DirEntry[str], name: str) -> bool:
    """Whether a file without a known extension is an image by its content."""
    called = name.endswith(UNREAD)  # camera raw files start like a TIFF
    if ending_of(name) and not called:
        return False
    try:
        begin = read_bytes(Path(entry.path), 132)
    except UserError:  # no file, or one that cannot be read
        return False
    return begins_as_image(begin) and not (called and begin.startswith((b"II", b"MM")))


def wanted(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is the user's: not hidden, and not of the operating system."""
    return not entry.name.startswith(".") and entry.name.lower() not in _SYSTEM


def ending_of(path: str) -> str:
    """Extension in lower case; empty if it has none or a number, as in DICOM."""
    ending = os.path.splitext(path)[1].lower()
    return "" if ending[1:].isdecimal() else ending


_log = logging.getLogger("mast")
_NAMED = 3  # most common extensions to list in a warning
_STRAY = 0.1  # largest share of images outside class folders


@final
class Files(Source):
    """Image files by relative path; a file that changes later counts as broken.

    Args:
        name: The user's name of the set.
        root: The folder.
        files: Path, bytes and time of modification in ns of each.
        labels: Class of each file; empty without labels.
    """

    def __init__(
        self, name: str, root: Path, files: Sequence[Found], labels: Sequence[str] = ()
    ) -> None:
        self.name, self.root, self._files = name, root, files
        self.targets, self.classes = {}, {}
        if labels:
            label_N, names = numbered(labels)
            self.targets, self.classes = {"class": label_N}, {"class": names}

    def __len__(self) -> int:
        return len(self._files)

    def open(self, index: int, page: int = 0) -> Opened:
        _, size, modified = self._files[index]
        return open_image(self.path(index), (size, modified), page, self.max_pixels)

    def path(self, index: int) -> Path:
        return named(self.root / self._files[index][0])

    def identifier(self, index: int) -> str:
        return self._files[index][0]

    @property
    def whereabouts(self) -> str:
        """The absolute path, as a relative one depends on the current folder."""
        return os.path.join(os.path.abspath(self.root), self.name)

    def fingerprint(self) -> str:
        return self.hash_files((of[0] for of in self._files), (of[1:] for of in self._files))


def read_folder(root: Path) -> Files:
    """All images below a folder, sorted by relative path; or a single image file.

    The first folder level is the class. Up to a tenth of the images may lie in the root itself,
    without a label. With more, or if subfolders look like splits, there are no labels. Files of
    unsupported formats are skipped with a warning. A folder with several links to it is read once.

    """
    if not root.is_dir():
        return Files(str(root), root.parent, [(root.name, *state_of(root))])
    found, unread = walk(root)
    others = _unread(unread) if unread else ""
    if not found:
        raise UserError(
            f"no image in {root}: expected files at any depth, not hidden, ending in "
            f"{', '.join(extensions())}; {others}."
        )
    if others:
        _log.warning("%s: %s.", root, others)
    files = sorted(found, key=lambda of: (spelling(of[0]), of))
    paths = [path for path, _, _ in files]
    reason = no_classes(paths)
    if not reason and (doubt := doubt_of_classes(paths)):
        _log.warning("%s: using its subfolders as classes, although %s.", root, doubt)
    elif reason and any("/" in path for path in paths):
        _log.warning("%s: no labels, as %s.", root, reason)
    labels = [path.partition("/")[0] if "/" in path else "" for path in paths]
    return Files(str(root), root, files, () if reason else labels)


def open_folder(spec: str, _root: Path, _download: bool) -> Files:
    """Opens an existing folder or image file."""
    path = named(spec)
    kind = special(path)
    called = path.name.lower().endswith(extensions())
    if not path.is_dir() and (kind or not (called or begins_as_image(read_bytes(path, 132)))):
        raise UserError(
            f"{spec} is {kind or 'no image'}: expected a folder of images, or a file "
            f"ending in {', '.join(extensions())}."
        )
    return read_folder(path)


def describe_folder(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The parts of a folder: its `train`, `val` and `test`, or without these the whole."""
    root = named(spec)
    if not os.path.isdir(root):
        raise UserError(
            f"no folder {root}: expected one with `train` and `test`, or a subfolder per class"
        )
    names = _subfolders(root)
    parts = parts_among(names) or {
        part: [name]
        for name in names
        for part, affix in [part_of(name) or ("", "other")]
        if not affix and _subfolders(root / name)
    }
    if not parts or any(len(of) > 1 for of in parts.values()):
        return SetDescription({WHOLE: spec})  # `./factors` stays a folder
    if others := sorted(set(names) - {name for of in parts.values() for name in of}):
        _log.warning(
            "%s: ignoring %d subfolders that are not named like splits: %s.",
            root, len(others), _some(others),
        )  # fmt: skip
    return SetDescription({part: str(root / name) for part, (name,) in parts.items()})


def no_classes(paths: Sequence[str]) -> str:
    """Why subfolders are not classes; empty if they are."""
    below = _below(paths)
    if not below:
        return "no image lies in a subfolder"
    above = sum("/" not in path for path in paths)
    if above > _STRAY * len(paths):
        return f"{above} of {len(paths)} images lie outside the subfolders"
    if parts := parts_among(below):
        names = _some(sorted(itertools.chain(*parts.values())))
        return f"{names} look like splits, not classes; name one to use it alone"
    return ""


def doubt_of_classes(paths: Sequence[str]) -> str:
    """Why classes may be at another folder level; empty otherwise."""
    below = _below(paths)
    (first, *others) = below.values()
    same = others and len(first) > 1 and "" not in first and all(of == first for of in others)
    if same or all(len(of) > 1 and parts_among(of) for of in below.values()):
        return f"each of them ({_some(list(below))}) has the subfolders {_some(sorted(first))}"
    return ""


def _below(paths: Sequence[str]) -> dict[str, set[str]]:
    """Subfolders with images of each subfolder; "" for images directly in it."""
    below: dict[str, set[str]] = {}
    for folder in sorted({path.rpartition("/")[0] for path in paths} - {""}):
        first, _, rest = folder.partition("/")
        below.setdefault(first, set()).add(rest.partition("/")[0])
    return below


def _subfolders(root: Path) -> list[str]:
    """Names of the folders in a folder; none if it is unreadable."""
    try:
        return sorted(entry.name for entry in filter(is_folder, filter(wanted, os.scandir(root))))
    except OSError:
        return []


def _unread(paths: list[str]) -> str:
    """Number of skipped files of unsupported formats, and a remedy."""
    counts = Counter(map(ending_of, paths))
    kinds = ", ".join(
        f"{count} {ending or 'without an ending'}" for ending, count in counts.most_common(_NAMED)
    )
    advice = "convert them to JPEG or PNG"
    if counts[ARRAY]:
        advice = f"arrays are read where most images are, or {advice}"
    for extra, endings in (("heif", HEIF), ("dicom", DICOM)):
        if any(counts[ending] for ending in endings):
            install = f"`pip install 'mast-ssl[{extra}]'` to read {', '.join(endings)}"
            advice = f"{install}, or {advice}"
    return f"skipped {len(paths)} files of unsupported formats ({kinds}): {_some(paths)}; {advice}"


def _some(paths: list[str]) -> str:
    """The first few of some paths."""
    return ", ".join([*paths[:_NAMED], *["…"] * (len(paths) > _NAMED)])
