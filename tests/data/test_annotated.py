"""Annotated objects as COCO and as VOC write them, and what they become."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layouts import SQUARE, box, coco_document, picture, voc_object, write_coco, write_voc
from PIL import Image

from mast.core.errors import UserError
from mast.data import Annotated, DataConfig, open_canvas, open_source
from mast.data.annotated import VOC_CLASSES

CAT_DOG = voc_object("dog", (1, 1, 8, 6)) + voc_object("cat", (3, 2, 4, 5), difficult=1)
INSTANCES = "annotations/instances_train2017.json"
LIST = "ImageSets/Main/trainval.txt"


@pytest.fixture
def coco(tmp_path):
    return write_coco(tmp_path / "coco")


@pytest.fixture
def voc(tmp_path):
    return write_voc(tmp_path / "VOC2007", a1=CAT_DOG, a2=voc_object("tvmonitor", (2, 2, 5, 4)))


def opened(root):
    return open_source(f"coco:{root}@train2017")


# ---------------------------------------------------------------------------------- COCO


def test_coco_set(coco):
    source = opened(coco)
    assert isinstance(source, Annotated)
    assert source.name == f"coco:{coco}@train2017"
    assert source.categories == ("cat", "dog", "owl")
    # By the number of the image, not in the order of the file.
    assert [source.identifier(index) for index in range(3)] == ["10.png", "20.png", "30.png"]
    assert source.path(2) == coco / "train2017" / "30.png"
    assert source.size(0) == (6, 8)
    assert source.load(1)[0, 0].tolist() == [20, 90, 160]
    assert source.targets == {}
    assert source.classes == {"objects": ("cat", "dog", "owl")}
    assert source.multilabels["objects"].tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    objects = source.objects(0)
    assert objects.boxes_N4.tolist() == [[2, 1, 6, 4], [0, 0, 8, 6]]
    assert objects.labels_N.tolist() == [1, 0]
    assert objects.crowd_N.tolist() == [False, True]
    assert objects.masks == (SQUARE, {"counts": [0, 48], "size": [6, 8]})
    assert objects.area_N.tolist() == [12, 48]  # the second is the box's, the file says none
    kinds = [objects.boxes_N4.dtype, objects.labels_N.dtype, objects.area_N.dtype]
    assert kinds == [np.float32, np.int64, np.float32]
    assert not objects.difficult_N.any()
    assert (len(source.objects(1)), source.objects(1).boxes_N4.shape) == (0, (0, 4))
    assert source.objects(2).boxes_N4.tolist() == [[5, 2, 8, 3.5]]  # clipped
    assert (source.objects(2).masks, source.objects(2).area_N.tolist()) == ((None,), [4.5])


def test_boxes_outside_or_of_no_area_are_dropped_and_counted(tmp_path, caplog):
    annotations = [
        box(10, 3, [1, 1, 2, 2]),
        box(20, 3, [9, 1, 2, 2]),  # right of the image
        box(20, 7, [1, 1, 0, 2]),
        box(30, 7, [4, 4, -2, 1]),
    ]
    source = opened(write_coco(tmp_path / "coco", annotations=annotations))
    assert source.multilabels["objects"].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert "3 of 4 boxes" in caplog.text
    assert "20.png" in caplog.text


def test_coco_images_are_found_in_three_places(tmp_path):
    for number, images in enumerate(("train2017", "images/train2017", ".")):
        root = write_coco(tmp_path / f"{number}", images)
        assert opened(root).path(0).samefile(root / images / "10.png")


MASKS = [
    [2, 1, 6, 1],
    [[2, 1, 6, 1, 6, 4, 2]],
    [[[2, 1], [6, 1], [6, 4]]],
    [[0, 0, 1e15, 0, 1e15, 1e15]],
    {"counts": [0, 47], "size": [6, 8]},
    {"counts": [-1, 49], "size": [6, 8]},
    {"counts": [0, 48], "size": [8, 6]},
    "polygon",
]


def test_masks_that_cannot_be_drawn_are_left_out_and_counted(tmp_path, caplog):
    annotations = [
        {**box(10, 7, [2, 1, 4, 3], segmentation=mask), "id": at} for at, mask in enumerate(MASKS)
    ]
    annotations.append(box(20, 3, [2, 1, 4, 3], segmentation=SQUARE))
    source = opened(write_coco(tmp_path, annotations=annotations))
    assert source.objects(0).boxes_N4.tolist() == [[2, 1, 6, 4]] * len(MASKS)
    assert set(source.objects(0).masks) == {None}
    assert source.objects(1).masks == (SQUARE,)
    assert f"{len(MASKS)} of {len(MASKS) + 1}, the first is 0 of 10.png" in caplog.text


def test_polygons_need_no_list_of_several_and_lines_are_dropped(tmp_path, caplog):
    masks = (SQUARE[0], [*SQUARE, [2, 1, 6, 4]], [[3, 3], *SQUARE])
    annotations = [box(10, 7, [2, 1, 4, 3], segmentation=mask) for mask in masks]
    source = opened(write_coco(tmp_path, annotations=annotations))
    assert source.objects(0).masks == (SQUARE,) * 3
    assert not caplog.messages


@pytest.mark.parametrize(("orientation", "ending"), [(6, "jpg"), (8, "tif")])
def test_an_annotation_is_for_the_upright_image(tmp_path, orientation, ending):
    root, exif = write_coco(tmp_path), Image.Exif()
    exif[0x0112] = orientation
    for number in (10, 20, 30):
        picture(root / "train2017" / f"{number}.{ending}", (6, 8), exif=exif)
    file = root / INSTANCES
    file.write_text(file.read_text().replace(".png", f".{ending}"))
    assert opened(root).load(0).shape == (6, 8, 3)
    assert opened(root).canvas(0, 12)[1] == pytest.approx(8 / 6)


def test_an_image_of_another_size_or_time_is_broken(coco):
    source = opened(coco)
    picture(coco / "train2017" / "20.png", (9, 6))
    with pytest.raises(UserError, match=r"20\.png: 6 × 9 pixels .* for 6 × 8"):
        opened(coco).load(1)
    os.utime(coco / "train2017" / "20.png", ns=(1, 1))
    with pytest.raises(UserError, match=r"20\.png: not the file that was there"):
        source.load(1)
    source.load(2)


@pytest.mark.parametrize(
    ("written", "file"),
    [
        (r"sub\1.png", "sub/1.png"), ("./sub//1.png", "sub/1.png"), ("SUB/1.PNG", "sub/1.png"),
        ("sub/1.jpg", "sub/1.png"), (r"Sub\1.JPEG", "sub/1.png"), ("é.png", "e\u0301.png"),
    ],
)  # fmt: skip
def test_an_image_is_found_by_other_slashes_case_form_or_ending(tmp_path, caplog, written, file):
    entries = [{"file_name": written}, {"id": 2, "file_name": "10.png"}]
    root = write_coco(tmp_path, **images(*entries, {"id": 3, "file_name": "gone/1.png"}))
    picture(root / "train2017" / file, shade=1)
    source = opened(root)
    assert source.load(0)[0, 0, 0] == 1
    assert source.identifier(0) == file
    canvases = open_canvas(DataConfig(source.name, cache=tmp_path / "c", max_broken=0.4), 16)
    assert canvases.skipped == {"gone/1.png": "No such file or directory"}
    with pytest.raises(UserError, match="gone/1"):
        open_canvas(DataConfig(source.name, cache=tmp_path / "c", max_broken=0.1), 16)


def test_a_name_that_fits_two_files_or_one_that_another_has_is_missing(tmp_path):
    entries = [
        {"file_name": "a.jpg"},
        {"id": 2, "file_name": "10.jpg"},
        {"id": 3, "file_name": "10.png"},
    ]
    root = write_coco(tmp_path, **images(*entries))
    for name in ("A.png", "a.bmp"):
        picture(root / "train2017" / name)
    source = opened(root)
    for index in (0, 1):
        with pytest.raises(UserError, match="No such file"):
            source.load(index)


def test_boxes_in_shares_of_an_image_are_in_another_unit(tmp_path):
    root = write_coco(tmp_path, annotations=[box(10, 3, [0.1, 0, 0.9, 1.0001])])
    write_voc(root, a1=voc_object("dog", (0.1, 0.2, 0.5, 1)))
    for spec in (f"coco:{root}@train2017", f"voc:{root}@trainval"):
        with pytest.raises(UserError, match="unit"):
            open_source(spec)


def test_a_class_of_voc_has_one_name_in_all_unicode_forms(tmp_path):
    boxes = voc_object("é", (1, 1, 8, 6)) + voc_object("e\u0301", (3, 2, 4, 5))
    root = write_voc(tmp_path, **{"e\u0301": boxes})
    (root / LIST).write_text("é\n")
    (root / "ImageSets" / "Main" / "e\u0301_trainval.txt").write_text("é 0\n")
    source = open_source(f"voc:{root}@trainval")
    assert (source.categories, source.objects(0).labels_N.tolist()) == (("é",), [0, 0])
    assert source.multilabels["objects"].tolist() == [[-1]]
    assert source.load(0).shape == (6, 8, 3)


def test_fingerprint_sees_annotations_and_images(coco):
    seen = {opened(coco).fingerprint()}
    assert opened(coco).fingerprint() in seen
    file = coco / INSTANCES
    file.write_text(file.read_text().replace('"owl"', '"elk"'))
    seen.add(opened(coco).fingerprint())
    os.utime(coco / "train2017" / "10.png", ns=(1, 1))
    seen.add(opened(coco).fingerprint())
    assert len(seen) == 3


# ----------------------------------------------------------------------------------- VOC


def test_voc_set(voc):
    source = open_source(f"voc:{voc}@trainval")
    assert source.categories == VOC_CLASSES == tuple(sorted(VOC_CLASSES))
    assert source.identifier(0) == "a1.jpg"
    assert source.path(1) == voc / "JPEGImages" / "a2.jpg"
    objects = source.objects(0)
    # From pixels counted from 1, the last one included, to edges counted from 0.
    assert objects.boxes_N4.tolist() == [[0, 0, 8, 6], [2, 1, 4, 5]]
    assert objects.area_N.tolist() == [48, 8]
    assert objects.labels_N.tolist() == [VOC_CLASSES.index("dog"), VOC_CLASSES.index("cat")]
    assert objects.difficult_N.tolist() == [False, True]
    label_C = source.multilabels["objects"][0]
    seen = {VOC_CLASSES[at]: label_C[at] for at in np.flatnonzero(label_C)}
    assert seen == {"cat": -1, "dog": 1}
    assert source.load(0).shape == (6, 8, 3)


def test_voc_has_the_classes_of_its_files(tmp_path, caplog):
    root = write_voc(tmp_path, "train", a1=voc_object("dog", (1, 1, 8, 6)))
    write_voc(root, "test", a2=voc_object("helmet", (2, 2, 5, 4)))
    (root / "Annotations" / "broken.xml").write_text("<annotation>")  # of no split
    for split, label in (("train", 0), ("test", 1)):
        source = open_source(f"voc:{root}@{split}")
        assert source.categories == ("dog", "helmet")  # the same in both
        assert source.objects(0).labels_N.tolist() == [label]
        assert source.multilabels["objects"][0, label] == 1
    assert "1, the first is helmet" in caplog.text


def test_voc_truth_comes_from_the_files_of_classes(voc, tmp_path):
    config = DataConfig(f"voc:{voc}@trainval", cache=tmp_path / "cache")
    before = open_source(config.spec).fingerprint(), open_canvas(config, 32).fingerprint
    (voc / "ImageSets" / "Main" / "cat_trainval.txt").write_text("a2  0\na1  1\nother -1\n")
    source = open_source(config.spec)
    assert source.multilabels["objects"][:, VOC_CLASSES.index("cat")].tolist() == [1, -1]
    assert source.multilabels["objects"][:, VOC_CLASSES.index("dog")].tolist() == [1, 0]
    assert source.fingerprint() != before[0]
    assert open_canvas(config, 32).fingerprint != before[1]  # the same pixels, other labels


def test_voc_images_in_folders_of_their_own(voc):
    for kind, ending in (("Annotations", "xml"), ("JPEGImages", "jpg")):
        (voc / kind / "other").mkdir()
        (voc / kind / f"a1.{ending}").rename(voc / kind / "other" / f"a1.{ending}")
    (voc / LIST).write_text("a2\nother/a1\n")
    source = open_source(f"voc:{voc}@trainval")
    assert [source.identifier(index) for index in range(2)] == ["a2.jpg", "other/a1.jpg"]


# ----------------------------------------------------------------------- what does not fit


def images(*entries):
    """A document of one image or more, of which one has an object."""
    whole = [{"id": 1, "file_name": "10.png", "width": 8, "height": 6} | each for each in entries]
    return {"images": whole, "annotations": [box(whole[0]["id"], 3, [0, 0, 1, 1])]}


def annotation(**changes):
    return {"annotations": [{**box(10, 3, [0, 0, 1, 1]), "id": 77, **changes}]}


NO_COCO: list[tuple[dict[str, Any], str]] = [
    ({"annotations": []}, "none of the 3 images .* has an annotated object"),
    ({"categories": None}, "has no list of categories: expected COCO's instances"),
    (annotation(category_id=4), "category_id that is none of its 3 .* is 4"),
    (annotation(image_id=11), "image_id that is none of its 3 .* is 11"),
    ({"annotations": [{"image_id": 10, "category_id": 3}]}, "an entry lacks 'bbox'"),
    ({"categories": [3]}, "has 3 among its categories"),
    ({"categories": [{"id": 3, "name": "a"}] * 2}, "two entries have the id 3"),
    ({"annotations": annotation(id=5)["annotations"] * 2}, "two annotations have the id 5"),
    (images({}, {"id": 2, "file_name": "./10.png"}), r"two images name the file 10\.png"),
    (images({"file_name": "gone.png"}), r"1 of the 1 images .* are not in .*train2017.* gone\.png"),
    (images({"file_name": "../../secret.png"}), r"names the image '\.\./\.\./secret\.png', which"),
    (images({"file_name": "/etc/passwd"}), "names the image '/etc/passwd', which"),
    (images({"file_name": 5}), "not written as COCO writes it.*file_name 5"),
    (images({"height": float("inf")}), r"instances_train2017\.json has the number Infinity"),
    (images({"width": -8}), "not written as COCO writes it.*-8 pixels"),
    (images({}, {"id": "thirty"}), "not written as COCO writes it"),
    (annotation(bbox=[0, 0, 1]), r"annotation 77 .*bbox \[0, 0, 1]"),
    (annotation(bbox=["0", "0", "1", "1"]), r"annotation 77 .*bbox \['0'"),
    (annotation(area="12"), "annotation 77 .*area '12'"),
    (annotation(iscrowd="0"), "annotation 77 .*iscrowd '0'"),
    (annotation(image_id=[3]), r"instances_train2017\.json"),
]


@pytest.mark.parametrize(("changes", "message"), NO_COCO, ids=range(len(NO_COCO)))
def test_coco_files_that_do_not_fit(tmp_path, changes, message):
    picture(tmp_path / "secret.png")
    with pytest.raises(UserError, match=message):
        opened(write_coco(tmp_path / "coco", **changes))


def text(file, old, new):
    """Replaces some text of a file; all of it where `old` is empty."""

    def change(root):
        path = root / file
        path.write_text(path.read_text().replace(old, new) if old else new)

    return change


def pipe(file):
    """Waits for who writes into it."""

    def change(root):
        (root / file).unlink(missing_ok=True)
        os.mkfifo(root / file)

    return change


LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
SIZE = "<annotation><size><width>{}</width><height>6</height></size></annotation>"
BROKEN: list[tuple[Callable[[Path], None], str]] = [
    (text(INSTANCES, '"area": 12', '"area": 1e400'), r"instances_train2017\.json"),
    (text(INSTANCES, '"area": 12', '"area": 12, "area": 13'), "has the field 'area' twice"),
    (text(INSTANCES, "", "{,"), r"instances_train2017\.json is not JSON"),
    (pipe(INSTANCES), r"instances_train2017\.json is a named pipe"),
    *((text("Annotations/a1.xml", "", content), r"a1\.xml is not written as VOC writes it")
      for content in (
          f'<!DOCTYPE x [<!ENTITY a0 "ha">{LAUGHS}]><annotation>&a11;</annotation>',
          '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><annotation>&f;</annotation>',
          "<annotation/>", "<object>", SIZE.format(0),
      )),
    *((text("Annotations/a1.xml", "<xmin>1</xmin><ymin>1", f"<xmin>1</xmin><ymin>{number}"),
       r"a1\.xml is not written as VOC writes it") for number in ("nan", "?")),
    (text("Annotations/a1.xml", "<xmax>8</xmax>", ""), "lacks <bndbox/xmax>"),
    (text(LIST, "", "a" * 300), r"aaa\.xml, though trainval\.txt lists aaa"),
    (text(LIST, "", "a1\n../../secret"), "names the image '../../secret', which leads"),
    (text(LIST, "", "a1\na1"), r"trainval\.txt lists a1 more than once"),
    (lambda root: (root / LIST).write_bytes(b"a1\n\xff\n"), r"trainval\.txt is not UTF-8 text"),
    *((text("ImageSets/Main/cat_trainval.txt", "", lines), "does not fit trainval.txt")
      for lines in ("a1 1\n", "a1 1\na2 5\n", "a1 1\na2\n")),
    (lambda root: shutil.rmtree(root / "JPEGImages"), "cannot read the folder .*JPEGImages"),
    *((pipe(file), "is a named pipe")
      for file in ("ImageSets/Main/cat_trainval.txt", "Annotations/a1.xml", LIST)),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken_files_are_named(coco, voc, damage, message, in_time):
    """Each damage is to one of the two sets; the other stays whole."""
    both = voc.parent / "both"
    both.mkdir()
    for path in (*coco.iterdir(), *voc.iterdir()):
        path.rename(both / path.name)
    damage(both)
    with pytest.raises(UserError, match=message):
        [opened(both), open_source(f"voc:{both}@trainval")]


def test_places_that_do_not_fit(coco, voc, tmp_path):
    file, photos = tmp_path / "x@y.json", coco / "train2017"
    file.write_text(json.dumps(coco_document()))
    assert len(open_source(f"coco:{file}@{photos}")) == 3
    for spec, message in {
        f"coco:{file}@{tmp_path / 'nowhere'}": r"no folder .*nowhere: expected coco:FILE\.json@FOL",
        f"coco:{tmp_path / 'nothing.json'}@{photos}": r"no file .*nothing\.json",
        f"coco:{tmp_path / 'nowhere'}@train2017": "expected coco:FOLDER@SPLIT",
        f"coco:{coco}@train": "unknown split of coco:.*train2017",
        f"coco:{coco}": "unknown split of coco:.*train2017",
        f"voc:{voc.parent}@trainval": f"expected voc:FOLDER@SPLIT.*Did you mean voc:{voc}",
        f"voc:{voc}@test": "unknown split of voc:.* 'test'.*trainval",
    }.items():
        with pytest.raises(UserError, match=message):
            open_source(spec)


# ------------------------------------------------------------------------------ canvases


def test_canvases_carry_the_labels_of_what_is_kept(coco, tmp_path):
    (coco / "train2017" / "20.png").write_bytes(b"no image")
    config = DataConfig(f"coco:{coco}@train2017", cache=tmp_path / "cache", max_broken=0.5)
    for canvases in (open_canvas(config, 32), open_canvas(replace(config, cache_limit_gb=0), 32)):
        assert canvases.identifiers == ["10.png", "30.png"]
        assert canvases.multilabels["objects"].tolist() == [[1, 1, 0], [1, 0, 0]]
        assert canvases.classes == {"objects": ("cat", "dog", "owl")}
        assert canvases.targets == {}
        assert canvases.subset([1, 1]).multilabels["objects"].tolist() == [[1, 0, 0], [1, 0, 0]]


def test_sets_joined(tmp_path):
    first = write_voc(tmp_path / "VOC2007", one=voc_object("dog", (2, 1, 5, 4)))
    second = write_voc(
        tmp_path / "VOC2012",
        two=voc_object("cat", (1, 1, 8, 6)),
        three=voc_object("dog", (1, 1, 4, 4), difficult=1),
    )
    both = open_source(f"voc:{first}@trainval+voc:{second}@trainval")
    assert [both.identifier(index) for index in range(3)] == [
        "VOC2007/JPEGImages/one.jpg",
        "VOC2012/JPEGImages/two.jpg",
        "VOC2012/JPEGImages/three.jpg",
    ]
    parts = [open_source(f"voc:{folder}@trainval") for folder in (first, second)]
    expected = np.concatenate([part.multilabels["objects"] for part in parts])
    assert np.array_equal(both.multilabels["objects"], expected)
    assert both.objects(1).boxes_N4.tolist() == [[0, 0, 8, 6]]
    assert both.load(0).shape == (6, 8, 3)
    assert both.fingerprint() not in [part.fingerprint() for part in parts]
    coco = write_coco(tmp_path / "coco")
    with pytest.raises(UserError, match="cannot be joined: their categories differ, 20 and 3"):
        open_source(f"voc:{first}@trainval+coco:{coco}@train2017")
    with pytest.raises(UserError, match="VOC2007 has no annotated objects"):
        open_source(f"{first}+voc:{first}@trainval")
