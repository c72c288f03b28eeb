"""Layouts of folders, their labels, order and fingerprint."""

import os

import pytest
from PIL import Image

from mast.core.errors import UserError
from mast.data import Folder, open_source


def fill(root, *paths):
    for number, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(root / path)
    return root


def names(source):
    return [source.identifier(index) for index in range(len(source))]


def test_flat_folder_has_no_labels(tmp_path):
    source = Folder(fill(tmp_path, "b.png", "a.JPEG", "c.Tiff"))
    assert names(source) == ["a.JPEG", "b.png", "c.Tiff"]
    assert source.targets == {} == source.classes


def test_first_folder_is_the_class_at_any_depth(tmp_path):
    source = Folder(fill(tmp_path, "dog/x/y/1.png", "cat/2.png", "dog/0.png"))
    assert names(source) == ["cat/2.png", "dog/0.png", "dog/x/y/1.png"]
    assert source.classes == {"class": ("cat", "dog")}
    assert source.targets["class"].tolist() == [0, 1, 1]


def test_one_image_in_the_root_means_no_labels(tmp_path):
    source = Folder(fill(tmp_path, "cat/2.png", "1.png"))
    assert len(source) == 2
    assert source.targets == {}


def test_hidden_and_other_files_are_left_out(tmp_path):
    fill(tmp_path, "a.png", ".hidden.png", ".git/b.png")
    (tmp_path / "notes.txt").write_text("x")
    assert names(Folder(tmp_path)) == ["a.png"]


def test_links_are_followed_once(tmp_path):
    fill(tmp_path / "real", "1.png")
    fill(tmp_path / "set", "here/2.png")
    (tmp_path / "set/there").symlink_to(tmp_path / "real")
    (tmp_path / "set/here/loop").symlink_to(tmp_path / "set")
    source = Folder(tmp_path / "set")
    # The other folder is read through every way that leads to it, the loop is not entered.
    assert names(source) == ["here/2.png", "there/1.png"]


def test_dangling_link_is_kept_to_be_counted_as_broken(tmp_path):
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(UserError, match=r"gone\.png"):
        Folder(tmp_path).load(0)


def test_empty_folder_says_what_it_looked_for(tmp_path):
    with pytest.raises(UserError, match=r"no image in .*\.jpg, \.jpeg, \.png"):
        Folder(tmp_path)


def test_split_folders_as_classes_are_pointed_out(tmp_path, caplog):
    Folder(fill(tmp_path, "train/a/1.png", "test/a/1.png"))
    assert "look like splits" in caplog.text


def test_fingerprint_sees_added_renamed_and_touched_files(tmp_path):
    fill(tmp_path, "a.png", "b.png")
    seen = {Folder(tmp_path).fingerprint()}
    assert Folder(tmp_path).fingerprint() in seen
    fill(tmp_path, "c/d.png")
    seen.add(Folder(tmp_path).fingerprint())
    (tmp_path / "a.png").rename(tmp_path / "z.png")
    seen.add(Folder(tmp_path).fingerprint())
    os.utime(tmp_path / "z.png", ns=(1, 1))
    seen.add(Folder(tmp_path).fingerprint())
    assert len(seen) == 4


def test_missing_folder_is_named_with_the_part_that_exists(tmp_path):
    with pytest.raises(UserError, match=f"no folder .*nope.*{tmp_path} exists"):
        open_source(tmp_path / "nope/deeper")


def test_file_instead_of_a_folder(tmp_path):
    fill(tmp_path, "a.png")
    with pytest.raises(UserError, match=r"a\.png is a file"):
        open_source(tmp_path / "a.png")
