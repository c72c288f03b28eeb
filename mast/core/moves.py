"""Move files to a folder and back; at any moment each file is complete in at least one place.

    FOLDER/moved.jsonl   a line of JSON for each file: `FIELDS`
    FOLDER/...           the files, each with its relative path

A line is on disk before its file moves, so files moved by a killed process can be restored.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path, PurePath

from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import read_text

LIST = "moved.jsonl"
# Path in the original folder, path in the list's folder, original folder, digest.
FIELDS = ("path", "moved", "root", "digest")
Line = Mapping[str, str]


def move(root: Path, paths: Sequence[str], folder: Path) -> Iterator[str]:
    """Move files below `root` into a folder, and yield the path of each moved file.

    If a name is taken, a number is added.

    Raises:
        UserError: The folder has a list of other files; or a file cannot be moved, in which case
            it and those after it stay.
    """
    file, whole = folder / LIST, os.path.realpath(root)
    known = _read(file, "move_to") if os.path.lexists(file) else []
    if others := {line["root"] for line in known} - {whole}:
        raise UserError(f"move_to: {folder} has files of {others.pop()}; choose another folder")
    for at, path in enumerate(paths):
        source, target = root / path, _free(folder / path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _check_inside(target, folder)
            moved, digest = os.path.relpath(target, folder), digest_of(source)
            _append(file, dict(zip(FIELDS, (path, moved, whole, digest), strict=True)))
            _relocate(source, target, digest)
        except OSError as error:
            before = f"; {at} files moved before, and {file} lists them" if at else ""
            raise UserError(
                f"move_to: {source} cannot be moved to {target} ({error.strerror}){before}"
            ) from error
        yield path


def restore(file: Path, root: Path) -> list[tuple[str, str]]:
    """Put the files of a list back below `root`.

    Returns:
        Each path, and why its file was left, or "" if it moved back. The list then contains the
        files that were left; without any, it is removed, as are empty folders.

    Raises:
        UserError: It is no such list; a path in it leads out of the folders; or its files are from
            another folder, which still exists.
    """
    lines = {line["moved"]: line for line in _read(file, "restore")}  # the last counts
    for line in lines.values():
        if os.path.exists(line["root"]) and line["root"] != os.path.realpath(root):
            raise UserError(f"restore: {file} has files of {line['root']}, not of {root}")
    found, remain = list[tuple[str, str]](), list[Line]()
    for line in lines.values():
        try:
            why = _put_back(file.parent, root, line)
        except OSError as error:
            why = str(error.strerror)
        found.append((line["path"], why))
        remain += [line] if why else []
    if remain:
        write_text(file, "".join(json.dumps(line) + "\n" for line in remain))
    else:
        file.unlink()
    folders = {file.parent / above for moved in lines for above in PurePath(moved).parents}
    for folder in sorted(folders, reverse=True):  # inner folders first
        with suppress(OSError):  # it is not empty
            folder.rmdir()
    return found


def digest_of(file: Path) -> str:
    """The digest of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()[:32]


def _read(file: Path, option: str) -> list[Line]:
    """The lines of a list, except for an unfinished last one of a killed process."""
    lines = list[Line]()
    texts = [text for text in read_text(file).splitlines() if text.strip()]
    for at, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            inside = not any(
                os.path.isabs(line[name]) or ".." in PurePath(line[name]).parts
                for name in ("path", "moved")
            )
            line = {name: str(line[name]) for name in FIELDS}
        except (ValueError, TypeError, KeyError) as error:
            if at == len(texts) > 1:
                break
            raise UserError(
                f"{option}: expected a list that --move_to wrote ({LIST}), got {file}"
            ) from error
        if not inside:
            raise UserError(f"{option}: {file} names {line['path']}, outside of the folder")
        lines.append(line)
    return lines


def _append(file: Path, line: Line) -> None:
    """Append a line to a list, even after an unfinished one."""
    with file.open("ab") as opened:
        opened.write(b"\n" + json.dumps(line).encode() + b"\n")
        opened.flush()
        os.fsync(opened.fileno())


def _check_inside(path: Path, folder: Path) -> None:
    """Raise if a folder on the path is a link to elsewhere."""
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.EXDEV, f"{path.parent} leads out of {folder}")


def _put_back(folder: Path, root: Path, line: Line) -> str:
    """Move a file back; returns the reason if that is impossible."""
    source, target = folder / line["moved"], root / line["path"]

    def is_it(path: Path) -> bool:
        return path.is_file() and not path.is_symlink() and digest_of(path) == line["digest"]

    _partial(source, line["digest"]).unlink(missing_ok=True)
    if not os.path.lexists(source):
        return "" if is_it(target) else "it is gone"
    _check_inside(source, folder)
    if not is_it(source):
        return "it changed since it was moved"
    if os.path.lexists(target):  # a killed process left both copies
        if not is_it(target):
            return "another file has its name"
        source.unlink()
        return ""
    target.parent.mkdir(parents=True, exist_ok=True)
    _check_inside(target, root)
    _relocate(source, target, line["digest"])
    return ""


def _free(path: Path) -> Path:
    """The path, or one with a number if it is taken."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(each for each in chain([path], numbered) if not os.path.lexists(each))


def _partial(path: Path, digest: str) -> Path:
    return path.with_name(f".mast-{digest}.partial")


def _relocate(source: Path, target: Path, digest: str) -> None:
    """Move a file to a free name, by a hard link or, where there are none, a verified copy."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        partial = _partial(target, digest)
        try:
            shutil.copy2(source, partial)
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            if digest_of(partial) != digest:
                raise OSError(errno.EIO, "its copy differs") from None
            _rename(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    try:
        source.unlink()
    except OSError:
        target.unlink()
        raise


def _rename(source: Path, target: Path) -> None:
    """Rename a file without overwriting another."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    source.rename(target)
