"""Files that move to a folder and back: none is lost, whatever ends the process."""

import json
import multiprocessing
import os
import random
import shutil
from pathlib import Path

import pytest

from mast.core import moves
from mast.core.errors import UserError
from mast.core.moves import LIST, move, restore


def contents(*folders: Path) -> list[bytes]:
    """Of all files, but for lists and what a killed process left unfinished."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    named = [file for file in files if file.name != LIST and not file.name.endswith(".partial")]
    return sorted(file.read_bytes() for file in named)


def work(root: Path, folder: Path, seed: int, across: bool) -> None:
    """Move some files and put them back, until a call of the system, drawn at random, ends it."""
    draw = random.Random(seed)
    left = draw.randrange(1, 40)

    def ending(function):  # type: ignore[no-untyped-def]
        def called(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal left
            left -= 1
            if left == 0 and draw.random() < 0.5:
                os._exit(9)
            result = function(*args, **kwargs)
            if left == 0:
                os._exit(9)
            return result

        return called

    if across:

        def link(*_: object, **__: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        os.link = link
        moves._rename = ending(moves._rename)
        shutil.copy2 = ending(shutil.copy2)
    else:
        os.link = ending(os.link)
    os.fsync, Path.unlink, Path.rmdir = map(ending, (os.fsync, Path.unlink, Path.rmdir))  # type: ignore[method-assign]
    while True:
        files = [str(file.relative_to(root)) for file in root.rglob("[!.]*.jpg")]
        for _ in move(root, draw.sample(files, len(files) // 2), folder):
            pass
        restore(folder / LIST, root)


@pytest.mark.parametrize("across", [False, True])
def test_killed_moves_lose_nothing(tmp_path: Path, across: bool) -> None:
    """After each of some kills all files are there, and one call puts all of them back."""
    root, folder = tmp_path / "photos", tmp_path / "moved"
    for at in range(20):
        file = root / f"{at % 3}" / f"{at}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([at]) * 100)
    whole = contents(root)
    fork = multiprocessing.get_context("fork")
    for seed in range(25):
        process = fork.Process(target=work, args=(root, folder, seed, across))
        process.start()
        process.join()
        assert process.exitcode == 9
        assert {*contents(root, folder)} == {*whole}
        if seed % 5 == 0 and (folder / LIST).exists():
            assert not any(why for _, why in restore(folder / LIST, root))
            assert contents(root) == whole
            assert not folder.exists()


def test_nothing_is_overwritten_and_lists_of_others_reach_nowhere(tmp_path: Path) -> None:
    root, folder = tmp_path / "photos", tmp_path / "moved"
    root.mkdir()
    raw = os.fsdecode(b"\xff=1.jpg")
    for name in ("a.jpg", "b.jpg", raw):
        (root / name).write_text(name, errors="surrogateescape")
    assert [*move(root, ["a.jpg", "b.jpg", raw], folder)] == ["a.jpg", "b.jpg", raw]
    (root / "a.jpg").write_text("another")
    assert [*move(root, ["a.jpg"], folder)] == ["a.jpg"]
    assert (folder / "a-2.jpg").read_text() == "another"
    (root / "b.jpg").write_text("a new one")
    (folder / "a-2.jpg").write_text("edited")
    with (folder / LIST).open("a") as file:
        file.write('{"path": "torn')  # by a killed process
    left = restore(folder / LIST, root)
    assert left == [
        ("a.jpg", ""), ("b.jpg", "another file has its name"), (raw, ""),
        ("a.jpg", "it changed since it was moved"),
    ]  # fmt: skip
    assert (root / "b.jpg").read_text() == "a new one"
    assert (folder / "b.jpg").read_text() == "b.jpg"
    with pytest.raises(UserError, match=r"move_to: .*gone.jpg cannot be moved"):
        [*move(root, ["gone.jpg"], folder)]
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(root / "a.jpg", other)
    for act in (lambda: [*move(other, ["a.jpg"], folder)], lambda: restore(folder / LIST, other)):
        with pytest.raises(UserError, match="has files of"):
            act()
    line = {"path": "gone.jpg", "moved": "b.jpg", "root": str(tmp_path / "gone"), "digest": ""}
    for path in ("../outside.jpg", "/etc/outside.jpg"):
        (folder / LIST).write_text(json.dumps(line | {"path": path}))
        with pytest.raises(UserError, match="outside of the folder"):
            restore(folder / LIST, root)
    for text in ("nonsense", "[1]", '{"path": 1}', '{"path": "a", "moved": "a"}'):
        (folder / LIST).write_text(text)
        with pytest.raises(UserError, match="restore: expected a list that --move_to wrote"):
            restore(folder / LIST, root)
        with pytest.raises(UserError, match="move_to: expected a list that --move_to wrote"):
            next(move(root, ["b.jpg"], folder))
    (folder / LIST).write_text(json.dumps(line | {"moved": "gone.jpg"}))
    assert restore(folder / LIST, root) == [("gone.jpg", "it is gone")]


def test_no_link_leads_out_of_the_folders_and_long_names_fit(tmp_path: Path) -> None:
    root, folder, outside = tmp_path / "photos", tmp_path / "moved", tmp_path / "outside"
    for each in (root / "sub", folder, outside):
        each.mkdir(parents=True)
    long = "x" * 251 + ".jpg"
    for path in ("sub/a.jpg", long):
        (root / path).write_text("whole")
    assert [*move(root, [long], folder)] == [long]
    assert restore(folder / LIST, root) == [(long, "")]
    folder.mkdir()
    (folder / "sub").symlink_to(outside)
    with pytest.raises(UserError, match="leads out of"):
        next(move(root, ["sub/a.jpg"], folder))
    assert (contents(outside), len(contents(root))) == ([], 2)
