"""Pages of files and tiles of scenes as images: where they lie, and that each is decoded once."""

import threading
import time
import unicodedata
from collections import Counter

import numpy as np
import pytest
import tifffile
from PIL import Image

from mast.core.errors import UserError
from mast.data import BrokenImageError, CanvasSet, DataConfig, open_canvas, open_source, pieces
from mast.data.decode import open_image
from mast.data.groups import group_names, groups_of
from mast.data.loader import open_loader
from mast.data.pieces import Tiles, TilingConfig, file_of, split_cut
from mast.data.pixels import decode_in_order
from mast.data.registry import describe

RANDOM = np.random.default_rng(0)


def noise(height, width):
    return RANDOM.integers(0, 256, (height, width, 3), np.uint8)


def opened(root, cut=""):
    return open_source(f"{root}{cut}", root.parent / "root")


def names(source):
    if isinstance(source, CanvasSet):
        return list(source.identifiers)
    return [source.identifier(index) for index in range(len(source))]


@pytest.fixture
def scenes(tmp_path):
    """A wide scene, a tall strip that EXIF turns, and an image that is smaller than a tile."""
    root = tmp_path / "scenes"
    pixels = {"a/wide.tif": noise(40, 70), "b/strip.png": noise(50, 20), "b/tiny.png": noise(9, 31)}
    for name, pixels_HWC in pixels.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name == "b/strip.png":  # stored as it lies before it is turned clockwise
            exif = Image.Exif()
            exif[0x0112] = 6
            Image.fromarray(np.rot90(pixels_HWC)).save(root / name, exif=exif)
        else:
            Image.fromarray(pixels_HWC).save(root / name)
    return root, pixels


def stack(file, sizes):
    pages = [noise(*size) for size in sizes]
    first, *others = map(Image.fromarray, pages)
    first.save(file, save_all=True, append_images=others, lossless=True)
    return pages


def test_tiles_show_all_of_a_scene_and_are_called_by_their_place(scenes):
    root, pixels = scenes
    source = opened(root, "#tile=32")
    assert names(source) == [
        *(f"a/wide.tif@x{x}y{y}" for y in (0, 8) for x in (0, 32, 38)),
        *(f"b/strip.png@x0y{y}" for y in (0, 18)),
        "b/tiny.png",
    ]
    assert source.targets["class"].tolist() == [0] * 6 + [1] * 3
    together = [source.together(at) for at in (0, 5, 7, 8)]
    assert together == [range(6), range(6), range(6, 8), range(8, 9)]
    for index, name in enumerate(names(source)):
        file, _, place = name.partition("@x")
        x, y = map(int, place.split("y")) if place else (0, 0)
        expected = pixels[file][y : y + 32, x : x + 32]
        assert np.array_equal(source.load(index), expected)
        assert source.size(index) == expected.shape[:2]
        canvas_HWC, aspect = source.canvas(index, 1000)
        assert np.array_equal(canvas_HWC, expected)
        assert aspect == expected.shape[1] / expected.shape[0]


def test_a_stride_is_kept_but_for_the_last_tile(scenes):
    for stride, expected in ((16, [0, 16, 32, 38]), (19, [0, 19, 38]), (100, [0, 38])):
        source = opened(scenes[0], f"#tile=32,stride={stride}")
        row = [name for name in names(source) if name.startswith("a/") and "y0" in name]
        assert row == [f"a/wide.tif@x{x}y0" for x in expected]


@pytest.mark.parametrize("ending", ["tif", "webp"])
def test_each_page_is_an_image(tmp_path, ending):
    root = tmp_path / "scans"
    root.mkdir()
    sizes = [(8, 12), (20, 6), (8, 12)] if ending == "tif" else [(8, 12)] * 3
    pages = stack(root / f"scan.{ending}", sizes)
    Image.fromarray(pages[0]).save(root / "single.png")
    source = opened(root, "#pages=all")
    assert names(source) == [f"scan.{ending}#{page}" for page in (1, 2, 3)] + ["single.png"]
    for index, page_HWC in enumerate([*pages, pages[0]]):
        assert np.array_equal(source.load(index), page_HWC)
        assert np.array_equal(source.canvas(index, 100)[0], page_HWC)
    assert not source.stacks
    assert names(opened(root)) == [f"scan.{ending}", "single.png"]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_overviews_are_no_pages(tmp_path, dtype):
    """Two scenes with two overviews each, as cloud-optimised TIFFs have them."""
    root = tmp_path / "scans"
    root.mkdir()
    pages = [noise(32, 40)[..., 0].astype(dtype) for _ in range(2)]
    with tifffile.TiffWriter(root / "scene.tif") as file:
        for page_HW in pages:
            file.write(page_HW, photometric="minisblack")
            file.write(page_HW[::2, ::2], photometric="minisblack", subfiletype=1)
            file.write(page_HW[::4, ::4], photometric="minisblack", subfiletype=1)
    source = opened(root, "#pages=all")
    assert names(source) == ["scene.tif#1", "scene.tif#4"]
    assert [source.size(index) for index in range(2)] == [(32, 40)] * 2
    with tifffile.TiffWriter(root / "scene.tif") as file:
        file.write(pages[0], photometric="minisblack")
        file.write(pages[0][::2, ::2], photometric="minisblack", subfiletype=1)
    plain = opened(root)
    plain.canvas(0, 100)
    assert not plain.stacks


def test_pages_are_cut_each_by_its_own_size(tmp_path):
    root = tmp_path / "scans"
    root.mkdir()
    pages = stack(root / "scan.tif", [(8, 12), (20, 6)])
    source = opened(root, "#pages=all,tile=10")
    assert names(source) == [
        "scan.tif#1@x0y0", "scan.tif#1@x2y0", "scan.tif#2@x0y0", "scan.tif#2@x0y10",
    ]  # fmt: skip
    assert np.array_equal(source.load(3), pages[1][10:])
    only_first = opened(root, "#tile=10")
    assert names(only_first) == ["scan.tif@x0y0", "scan.tif@x2y0"]
    assert only_first.stacks == {0}


def test_options_and_names_say_the_same(scenes, tmp_path, caplog):
    root, _ = scenes
    stack(root / "a" / "scan.tif", [(8, 12), (20, 6)])
    cache = {"cache": tmp_path / "cache"}
    whole = open_canvas(DataConfig(str(root), **cache), 16)
    assert "#pages=all" in caplog.text
    assert "data.pages=all" in caplog.text
    caplog.clear()
    by_options = open_canvas(DataConfig(str(root), pages="all", tile=32, stride=16, **cache), 16)
    by_name = open_canvas(DataConfig(f"{root}#pages=all,tile=32,stride=16", **cache), 16)
    assert not caplog.text
    assert by_options.name == by_name.name
    assert by_options.fingerprint == by_name.fingerprint
    assert len(whole) == 4 < len(by_name) == len(names(by_options))
    with pytest.raises(UserError, match="got both"):
        open_canvas(DataConfig(f"{root}#tile=32", tile=16, **cache), 16)


def test_every_option_is_part_of_the_fingerprint(scenes):
    root, _ = scenes
    cuts = ["", "#tile=32", "#tile=16", "#tile=32,stride=8", "#pages=all"]
    assert len({opened(root, cut).fingerprint() for cut in cuts}) == len(cuts)


def test_a_scene_is_decoded_once_while_its_tiles_are_read_in_order(scenes, tmp_path, monkeypatch):
    root, _ = scenes
    for number in range(3):
        Image.fromarray(noise(64, 64)).save(root / "a" / f"{number}.png")
    decoded, decode = Counter[int](), Tiles._decode

    def counted(source, scene):
        decoded[scene] += 1
        time.sleep(0.01)
        return decode(source, scene)

    monkeypatch.setattr(Tiles, "_decode", counted)
    source = opened(root, "#tile=16")
    outcomes = list(decode_in_order(source.load, range(len(source)), 4))
    assert all(isinstance(outcome, np.ndarray) for outcome in outcomes)
    assert set(decoded.values()) == {1}
    assert isinstance(source, Tiles)
    assert not source._decoded, "scenes stay in memory"
    decoded.clear()
    canvases = open_canvas(DataConfig(f"{root}#tile=16", cache=tmp_path / "cache", workers=4), 16)
    assert len(canvases) == len(source)
    assert set(decoded.values()) == {1}


def test_memory_holds_no_more_scenes_than_fit(scenes, monkeypatch):
    root, _ = scenes
    for number in range(4):
        Image.fromarray(noise(64, 64)).save(root / "a" / f"{number}.png")
    monkeypatch.setattr(pieces, "CACHED_PIXELS", 2 * 64 * 64)
    source, held, lock = opened(root, "#tile=16"), [0], threading.Lock()
    assert isinstance(source, Tiles)

    def load(index):
        loaded = source.load(index)
        with lock, source._lock:
            held.append(sum(int(source._size_S2[of].prod()) for of in source._decoded))
        return loaded

    list(decode_in_order(load, range(len(source)), 6))
    for index in np.random.default_rng(0).permutation(len(source)).tolist():
        load(index)
    assert 0 < max(held) <= pieces.CACHED_PIXELS


@pytest.mark.parametrize("name", ["raw.tif", "photo.jpg"])
def test_images_beyond_the_bound_are_allowed_for_one_set(tmp_path, monkeypatch, name):
    root = tmp_path / "large"
    root.mkdir()
    Image.fromarray(noise(40, 60)).save(root / name)
    expected = np.asarray(Image.open(root / name).convert("RGB"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    for cut in ("", "#max_pixels=2399"):
        with pytest.raises(BrokenImageError, match="max_pixels"):
            opened(root, cut).load(0)
    assert np.array_equal(opened(root, "#max_pixels=2400").load(0), expected)
    tiles = opened(root, "#max_pixels=2400,tile=20")
    assert np.array_equal(tiles.load(5), expected[20:, 40:])
    assert Image.MAX_IMAGE_PIXELS == 500
    (tmp_path / "no.png").write_bytes(b"nothing")
    with pytest.raises(OSError, match="no image"):
        open_image(tmp_path / "no.png", max_pixels=100)
    assert len(opened(root, "#tile=20")) == 1  # what is not allowed is one broken image


def test_a_damaged_scene_is_broken_in_each_of_its_tiles_and_read_once(scenes, monkeypatch):
    root, _ = scenes
    file = root / "a" / "wide.tif"
    file.write_bytes(file.read_bytes()[:2000])
    decoded = []
    decode = Tiles._decode
    monkeypatch.setattr(
        Tiles, "_decode", lambda self, scene: decoded.append(scene) or decode(self, scene)
    )
    source = opened(root, "#tile=32")
    outcomes = list(decode_in_order(source.load, range(len(source)), 2))
    broken = [of.name for of in outcomes if isinstance(of, BrokenImageError)]
    assert len(broken) in (1, 6)  # the header may be what is damaged
    assert decoded.count(0) <= 1


def test_what_is_not_understood_is_refused(scenes):
    for cut in ("tile=0", "tile=x", "stride=4", "pages=2", "tiles=4", "tile=4,strid=2"):
        with pytest.raises(UserError):
            opened(scenes[0], f"#{cut}")
    with pytest.raises(UserError, match=r"data\.tile"):
        DataConfig("photos", tile=0)


def test_a_name_is_split_only_where_nothing_is_called_so(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part / "a").mkdir(parents=True)
    cut = "#tile=4,stride=2"
    parts = {part: f"{tmp_path}/{part}{cut}" for part in ("train", "test")}
    assert describe(f"{tmp_path}{cut}").parts == parts
    assert split_cut("a#tile=4") == ("a", TilingConfig(tile=4))
    assert split_cut("hf:owner/name@train#photo") == ("hf:owner/name@train#photo", TilingConfig())
    assert split_cut("hf:owner/name@train#photo#tile=4") == (
        "hf:owner/name@train#photo",
        TilingConfig(tile=4),
    )
    (tmp_path / "a#tile=4").mkdir()
    assert split_cut(f"{tmp_path}/a#tile=4") == (f"{tmp_path}/a#tile=4", TilingConfig())


def test_shards_that_are_read_in_order_are_not_cut(tmp_path):
    import torch

    for config in (DataConfig("shards:x#tile=4"), DataConfig("shards:x", pages="all")):
        with pytest.raises(UserError, match="mast shard"):
            open_loader(config, 8, 2, 0, rank=0, world_size=1, local=1, device=torch.device("cpu"))


def test_pieces_of_one_file_are_one_group():
    names = ["a.tif#1", "a.tif#2@x0y0", "b.tif@x4y0", "b.tif", "c#1.png", "c#2.png"]
    group_N = groups_of([*map(file_of, names)])
    assert group_N is not None
    assert group_N.tolist() == [0, 0, 1, 1, 2, 3]
    assert groups_of(["a.tif", "b.tif", "c#1.png"]) is None


def test_groups_are_a_column_a_level_or_a_pattern(tmp_path):
    names, expected = ["a/p1/x.png#1", "b/p1/y.png", "a/p2/z.png@x0y0"], ("p1", "p1", "p2")
    (tmp_path / "t.csv").write_text(
        "path,label,Patient (ID)\na/p1/x.png,0,p1\nb/p1/y.png,1,p1\na/p2/z.png,0,p2\n"
    )
    table = f"list:{tmp_path}/t.csv"
    for spec, groups in ((table, "Patient (ID)"), ("f", "2"), ("f", r"/(p\d{1,3})/"), (table, "2")):
        cut = split_cut(f"{spec}#tile=8,groups={groups}")[1]
        assert (cut.tile, cut.groups) == (8, groups)
        assert group_names(f"{spec}{cut.suffix}", names, groups) == expected
    for groups, refused in (
        ("3", "no group of 3 of 3 images"),
        ("(p2)", "no group of 2 of 3 images"),
        ("(p)(2)", "got 2"),
        ("(", "no regular"),
        ("lable", "mean 'label'"),
    ):
        with pytest.raises(UserError, match=refused):
            group_names(table, names, groups)


def test_images_are_excluded_by_name_or_path(scenes, tmp_path, caplog):
    root, _ = scenes
    listed = tmp_path / "drop.txt"
    listed.write_text(f"b/tiny.png\n{root / 'a/wide.tif'}\nno\u2028where.png\n\n")
    without = opened(root, f"#tile=32,exclude={listed}")
    assert names(without) == ["b/strip.png@x0y0", "b/strip.png@x0y18"]
    assert without.targets["class"].tolist() == [1, 1]
    assert "1 of the 3 names in" in caplog.text
    config = DataConfig(str(root), cache=tmp_path / "c", exclude=listed)
    kept = open_canvas(config, 16)
    listed.write_text("b/tiny.png\n")
    more = open_canvas(config, 16)
    assert (names(kept), names(more)) == (["b/strip.png"], ["a/wide.tif", "b/strip.png"])
    assert kept.fingerprint != more.fingerprint
    listed.write_text("a/wide.tif\nb/strip.png\nb/tiny.png\n")
    with pytest.raises(UserError, match="leaves no image of"):
        open_canvas(config, 16)


def test_relative_names_exclude_what_they_name_from_here(scenes, tmp_path, monkeypatch, caplog):
    root, _ = scenes
    listed = tmp_path / "drop.txt"
    listed.write_text(f"{root.name}/a/wide.tif\n")
    cut = f"#exclude={listed}"
    monkeypatch.chdir(root.parent)
    assert names(opened(root, cut)) == ["b/strip.png", "b/tiny.png"]
    monkeypatch.chdir(root)
    assert len(opened(root, cut)) == 3
    assert "1 of the 1 names" in caplog.text


@pytest.mark.parametrize(
    "line",
    ["é 1.png", '"é 1.png"', "e\u0301 1.png", "é 1.png\tcat", '"é 1.png";cat', "é 1.png\r\n"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_list_may_be_of_a_spreadsheet_and_of_another_unicode_form(tmp_path, line, encoding, form):
    root, listed = tmp_path / "set", tmp_path / "drop.txt"
    root.mkdir()
    for name in ("é 1.png", "é 2.png"):
        Image.new("RGB", (4, 4)).save(root / unicodedata.normalize(form, name))
    listed.write_text(line, encoding=encoding, newline="")
    (left,) = names(opened(root, f"#exclude={listed}"))
    assert left.endswith("2.png")
    assert unicodedata.is_normalized(form, left)  # as the file is called
