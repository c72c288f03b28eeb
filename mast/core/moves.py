"""Files that move to a folder and back: at every moment each is whole in one place, or in both.

    FOLDER/moved.jsonl   {"path": below the photos, "moved": below FOLDER, "digest": of the content}
    FOLDER/...           the files, each with its relative path

A line is on disk before its file moves, so what a killed process moved can be put back.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePath

from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import read_text

LIST = "moved.jsonl"
Line = Mapping[str, str]


def move(root: Path, paths: Iterable[str], folder: Path) -> Iterator[str]:
    """Move files below `root` into a folder, and yield the path of each that has moved.

    Where the name is taken, a number is added to it.

    Raises:
        UserError: A file cannot be moved; it and those after it are where they were.
    """
    for path in paths:
        source, target = root / path, _free(folder / path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            line = {
                "path": path,
                "moved": os.path.relpath(target, folder),
                "digest": digest_of(source),
            }
            with (folder / LIST).open("a", encoding="ascii") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
            _relocate(source, target)
        except OSError as error:
            raise UserError(f"move_to: {source} cannot be moved: {error.strerror}") from error
        yield path


def restore(file: Path, root: Path) -> dict[str, str]:
    """Put the files of a list back below `root`.

    Returns:
        For each path why it was left where it is, or "" if it is back. The list has what was left,
        and is removed with the last file, and so are folders that became empty.

    Raises:
        UserError: It is no such list, or a path in it leads out of the folders.
    """
    lines = {line["moved"]: line for line in _read(file)}  # the last one of a name holds
    left = dict[str, str]()
    for line in lines.values():
        try:
            left[line["path"]] = _put_back(file.parent / line["moved"], root / line["path"], line)
        except OSError as error:
            left[line["path"]] = str(error.strerror)
    remain = [line for line in lines.values() if left[line["path"]]]
    if remain:
        write_text(file, "".join(json.dumps(line) + "\n" for line in remain))
    else:
        file.unlink()
    folders = {file.parent / above for moved in lines for above in PurePath(moved).parents}
    for folder in sorted(folders, reverse=True):  # those within others first
        with suppress(OSError):  # it is not empty
            folder.rmdir()
    return left


def digest_of(file: Path) -> str:
    """The digest of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()[:32]


def _read(file: Path) -> list[Line]:
    lines = list[Line]()
    for text in read_text(file).splitlines():
        try:
            line = json.loads(text)
            inside = not any(
                os.path.isabs(line[name]) or ".." in PurePath(line[name]).parts
                for name in ("path", "moved")
            )
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"restore: expected a list that --move_to wrote ({LIST}), got {file}"
            ) from error
        if not inside:
            raise UserError(f"restore: {file} names {line['path']}, outside of the folder")
        lines.append(line)
    return lines


def _put_back(source: Path, target: Path, line: Line) -> str:
    """Move a file back; why not, if another is there in its place."""
    _partial(source).unlink(missing_ok=True)
    if not os.path.lexists(source):
        return "" if os.path.lexists(target) else "it is gone"
    if source.is_symlink() or not source.is_file() or digest_of(source) != line["digest"]:
        return "it changed since it was moved"
    if os.path.lexists(target):  # a killed process left both
        if target.is_symlink() or not target.is_file() or digest_of(target) != line["digest"]:
            return "another file has its name"
        source.unlink()
        return ""
    target.parent.mkdir(parents=True, exist_ok=True)
    _relocate(source, target)
    return ""


def _free(path: Path) -> Path:
    """The path, or one with a number where it is taken."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return path if not os.path.lexists(path) else next(
        each for each in numbered if not os.path.lexists(each)
    )  # fmt: skip


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _relocate(source: Path, target: Path) -> None:
    """Move a file to a name that is free: by a second name, or by a copy that is verified."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # another file system, or one without second names
        if _same_system(source, target):
            _rename(source, target)
            return
        partial = _partial(target)
        try:
            shutil.copy2(source, partial)
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            if digest_of(partial) != digest_of(source):
                raise OSError(errno.EIO, "its copy differs") from None
            _rename(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    try:
        source.unlink()
    except OSError:
        target.unlink()
        raise


def _same_system(source: Path, target: Path) -> bool:
    return source.stat().st_dev == target.parent.stat().st_dev


def _rename(source: Path, target: Path) -> None:
    """Rename a file, not over another one."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    source.rename(target)
