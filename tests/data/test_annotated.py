"""Annotated objects as COCO and as VOC write them, and what they become."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from layouts import SQUARE, box, coco_document, picture, voc_object, write_coco, write_voc
from PIL import Image

from mast.core.errors import UserError
from mast.data import Annotated, DataConfig, Objects, open_canvas, open_source
from mast.data.annotated import VOC_CLASSES as CLASSES
from mast.data.annotated import coco_splits, voc_splits

CAT_DOG = voc_object("dog", (1, 1, 8, 6)) + voc_object("cat", (3, 2, 4, 5), difficult=1)


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
    assert source.category_ids == (3, 7, 9)
    # By the number of the image, not in the order of the file.
    assert [source.identifier(index) for index in range(3)] == ["10.png", "20.png", "30.png"]
    assert source.path(2) == coco / "train2017" / "30.png"
    assert source.size(0) == (6, 8)
    assert source.load(1)[0, 0].tolist() == [20, 90, 160]
    assert source.targets == {}
    assert source.classes == {"objects": ("cat", "dog", "owl")}
    assert source.multilabels["objects"].tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert source.multilabels["objects"].dtype == np.int8


def test_coco_objects(coco):
    objects = opened(coco).objects(0)
    assert objects.boxes_N4.tolist() == [[2, 1, 6, 4], [0, 0, 8, 6]]
    assert objects.labels_N.tolist() == [1, 0]
    assert objects.crowd_N.tolist() == [False, True]
    assert objects.masks == (SQUARE, {"counts": [0, 48], "size": [6, 8]})
    assert objects.area_N.tolist() == [12, 48]  # the second is the box's, the file says none
    kinds = [objects.boxes_N4.dtype, objects.labels_N.dtype, objects.area_N.dtype]
    assert kinds == [np.float32, np.int64, np.float32]
    assert not objects.difficult_N.any()


def test_coco_categories_of_one_name_are_told_apart(tmp_path):
    names = {3: "cat", 7: "dog", 9: "cat"}
    categories = [{"id": number, "name": name} for number, name in names.items()]
    source = opened(write_coco(tmp_path, categories=categories))
    assert source.categories == ("cat (3)", "dog", "cat (9)")
    assert source.classes == {"objects": source.categories}


def test_objects_without_any_and_with_a_clipped_box(coco):
    source = opened(coco)
    none = source.objects(1)
    assert (len(none), none.boxes_N4.shape, none.masks) == (0, (0, 4), ())
    clipped = source.objects(2)
    assert clipped.boxes_N4.tolist() == [[5, 2, 8, 3.5]]
    assert clipped.masks == (None,)
    assert clipped.area_N.tolist() == [4.5]


def test_objects_are_selected_together(coco):
    objects = opened(coco).objects(0)
    chosen = objects.select(~objects.crowd_N)
    assert isinstance(chosen, Objects)
    assert (len(chosen), chosen.labels_N.tolist(), chosen.masks) == (1, [1], (SQUARE,))


def test_boxes_outside_or_of_no_area_are_dropped_and_counted(tmp_path, caplog):
    annotations = [
        box(10, 3, [1, 1, 2, 2]),
        box(20, 3, [9, 1, 2, 2]),  # right of the image
        box(20, 7, [1, 1, 0, 2]),
        box(30, 7, [4, 4, -2, 1]),
    ]
    source = opened(write_coco(tmp_path / "coco", annotations=annotations))
    assert [len(source.objects(index)) for index in range(3)] == [1, 0, 0]
    assert source.multilabels["objects"].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert "3 of 4 boxes" in caplog.text
    assert "20.png" in caplog.text


@pytest.mark.parametrize("images", ["train2017", "images/train2017", "."])
def test_coco_images_are_found_in_three_places(tmp_path, images):
    source = opened(write_coco(tmp_path / "coco", images))
    assert source.path(0).samefile(tmp_path / "coco" / images / "10.png")


def test_coco_file_anywhere(tmp_path):
    file, photos = tmp_path / "x@y.json", tmp_path / "photos"
    file.write_text(json.dumps(coco_document()))
    for number in (10, 20, 30):
        picture(photos / f"{number}.png")
    assert len(open_source(f"coco:{file}@{photos}")) == 3
    with pytest.raises(UserError, match=r"no folder .*nowhere: expected coco:FILE\.json@FOLDER"):
        open_source(f"coco:{file}@{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match=r"no file .*nothing\.json"):
        open_source(f"coco:{tmp_path / 'nothing.json'}@{photos}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"annotations": []}, "none of the 3 images .* has an annotated object"),
        ({"categories": None}, r"has no list of categories: expected COCO's instances"),
        ({"annotations": [box(10, 4, [0, 0, 1, 1])]}, "category_id that is none of its 3 .* is 4"),
        ({"annotations": [box(11, 3, [0, 0, 1, 1])]}, "image_id that is none of its 3 .* is 11"),
        ({"annotations": [{"image_id": 10, "category_id": 3}]}, "an entry lacks 'bbox'"),
        ({"categories": [3]}, "has 3 among its categories"),
        ({"categories": [{"id": 3, "name": "a"}] * 2}, "two entries have the id 3"),
        (
            {"annotations": [box(10, 3, [0, 0, 1, 1]) | {"id": 5}] * 2},
            "two annotations have the id 5",
        ),
        (
            {"images": [{"id": number, "file_name": name, "width": 8, "height": 6}
                        for number, name in ((1, "10.png"), (2, "./10.png"))],
             "annotations": [box(1, 3, [0, 0, 1, 1])]},
            r"two images name the file 10\.png",
        ),
        (
            {"images": [{"id": 1, "file_name": "gone.png", "width": 8, "height": 6}],
             "annotations": [box(1, 3, [0, 0, 1, 1])]},
            r"1 of the 1 images .* are not in .*train2017, the first is gone\.png",
        ),
    ],
)  # fmt: skip
def test_coco_files_that_do_not_fit(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        opened(write_coco(tmp_path / "coco", **changes))


@pytest.mark.parametrize("entry", ["../../secret.png", "/etc/passwd", "a/../../b.png"])
def test_coco_images_outside_of_their_folder_are_refused(tmp_path, entry):
    picture(tmp_path / "secret.png")
    images = [{"id": 1, "file_name": entry, "width": 8, "height": 6}]
    root = write_coco(tmp_path / "coco", images=images, annotations=[box(1, 3, [0, 0, 1, 1])])
    with pytest.raises(UserError, match=f"instances_train2017.json names the image '{entry}', whi"):
        opened(root)


def test_links_in_the_folder_of_images_are_followed(coco, tmp_path):
    (coco / "train2017").rename(tmp_path / "elsewhere")
    (coco / "train2017").symlink_to(tmp_path / "elsewhere")
    picture(tmp_path / "other.png", shade=20)
    (tmp_path / "elsewhere" / "20.png").unlink()
    (tmp_path / "elsewhere" / "20.png").symlink_to(tmp_path / "other.png")
    assert opened(coco).load(1).shape == (6, 8, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file_name": "a\0.png"}, "1 of the 3 images"),
        ({"height": float("inf")}, r"instances_train2017\.json has the number Infinity"),
        ({"height": None}, "not written as COCO writes it"),
        ({"width": -8}, "not written as COCO writes it.*-8 pixels"),
        ({"file_name": 5}, "not written as COCO writes it.*file_name 5"),
        ({"id": "thirty"}, "not written as COCO writes it"),
    ],
)
def test_coco_values_that_no_image_has(tmp_path, changes, message):
    document = coco_document()
    document["images"][0] |= changes
    with pytest.raises(UserError, match=message):
        opened(write_coco(tmp_path / "coco", images=document["images"]))


@pytest.mark.parametrize(
    "changes",
    [
        {"bbox": [0, 0, 1]},
        {"bbox": ["0", "0", "1", "1"]},
        {"bbox": None},
        {"area": "12"},
        {"iscrowd": "0"},
    ],
)
def test_an_annotation_that_is_not_cocos_is_named(tmp_path, changes):
    ((field, value),) = changes.items()
    annotations = [box(10, 7, [2, 1, 4, 3]), {**box(30, 3, [0, 0, 1, 1]), "id": 77, **changes}]
    with pytest.raises(UserError) as raised:
        opened(write_coco(tmp_path, annotations=annotations))
    for fact in ("instances_train2017.json", "77", field, str(value)):
        assert fact in str(raised.value)


@pytest.mark.parametrize("field", ["image_id", "category_id"])
@pytest.mark.parametrize("value", [[3], "3"])
def test_numbers_of_another_type_are_refused(tmp_path, field, value):
    annotation = {**box(10, 3, [0, 0, 1, 1]), field: value}
    with pytest.raises(UserError, match=r"instances_train2017\.json"):
        opened(write_coco(tmp_path, annotations=[annotation]))


@pytest.mark.parametrize(
    "mask",
    [
        [2, 1, 6, 1],
        [[2, 1, 6, 1]],
        [[2, 1, 6, 1, 6, 4, 2]],
        [[[2, 1], [6, 1], [6, 4]]],
        [[]],
        [[0, 0, 1e15, 0, 1e15, 1e15]],
        {"counts": [0, 47], "size": [6, 8]},
        {"counts": [-1, 49], "size": [6, 8]},
        {"counts": [0, 48], "size": [8, 6]},
        {"counts": [0, 48]},
        "polygon",
    ],
)
def test_a_mask_that_cannot_be_drawn_is_left_out_and_counted(tmp_path, mask, caplog):
    annotations = [
        {**box(10, 7, [2, 1, 4, 3], segmentation=mask), "id": 77},
        box(20, 3, [2, 1, 4, 3], segmentation=SQUARE),
    ]
    source = opened(write_coco(tmp_path, annotations=annotations))
    assert source.objects(0).boxes_N4.tolist() == [[2, 1, 6, 4]]
    assert source.objects(0).masks == (None,)
    assert source.objects(1).masks == (SQUARE,)
    assert "1 of 2" in caplog.text
    assert "77 of 10.png" in caplog.text


@pytest.mark.parametrize("mask", [SQUARE[0], [*SQUARE, [2, 1, 6, 4]], [[3, 3], *SQUARE]])
def test_polygons_need_no_list_of_several_and_lines_are_dropped(tmp_path, mask, caplog):
    annotations = [box(10, 7, [2, 1, 4, 3], segmentation=mask)]
    assert opened(write_coco(tmp_path, annotations=annotations)).objects(0).masks == (SQUARE,)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("orientation", "ending"), [(3, "png"), (6, "jpg"), (6, "png"), (8, "tif")]
)
def test_an_annotation_is_for_the_upright_image(tmp_path, orientation, ending):
    root, exif = write_coco(tmp_path), Image.Exif()
    exif[0x0112] = orientation
    stored = (6, 8) if orientation >= 5 else (8, 6)
    for number in (10, 20, 30):
        picture(root / "train2017" / f"{number}.{ending}", stored, exif=exif)
    file = root / "annotations" / "instances_train2017.json"
    file.write_text(file.read_text().replace(".png", f".{ending}"))
    source = opened(root)
    assert source.load(0).shape == (6, 8, 3)
    assert source.canvas(0, 12)[1] == pytest.approx(8 / 6)


@pytest.mark.parametrize("text", ["1e400", "NaN", "1" * 5000])
def test_numbers_that_are_none_are_refused(coco, text):
    file = coco / "annotations" / "instances_train2017.json"
    file.write_text(file.read_text().replace('"area": 12', f'"area": {text}'))
    with pytest.raises(UserError, match=r"instances_train2017\.json"):
        opened(coco)


def test_a_field_that_is_there_twice_is_refused(coco):
    file = coco / "annotations" / "instances_train2017.json"
    file.write_text(file.read_text().replace('"area": 12', '"area": 12, "area": 13'))
    with pytest.raises(UserError, match=r"instances_train2017\.json has the field 'area' twice"):
        opened(coco)


def test_annotations_that_are_pipes_are_refused(coco, voc, in_time):
    """A pipe waits for who writes into it."""
    file = coco / "annotations" / "instances_train2017.json"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UserError, match=r"instances_train2017\.json is a named pipe"):
        opened(coco)
    with pytest.raises(UserError, match=r"no file .*instances_train2017\.json"):
        open_source(f"coco:{file}@{coco}")
    truth = voc / "ImageSets" / "Main" / "cat_trainval.txt"
    for path in (truth, voc / "Annotations" / "a1.xml", truth.with_name("trainval.txt")):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises(UserError, match=rf"{path.name} is a named pipe"):
            open_source(f"voc:{voc}@trainval")
        path.unlink()
        path.write_text("" if path == truth else "a1")
        if path == truth:
            path.unlink()


def test_nested_json_is_refused(coco):
    (coco / "annotations" / "instances_train2017.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"instances_train2017\.json is not JSON"):
        opened(coco)


def test_coco_places_that_do_not_fit(coco, tmp_path):
    with pytest.raises(UserError, match=r"expected coco:FOLDER@SPLIT"):
        open_source(f"coco:{tmp_path / 'nowhere'}@train2017")
    for missing in ("@train", ""):
        with pytest.raises(UserError, match=r"unknown split of coco:.*train2017"):
            open_source(f"coco:{coco}{missing}")
    (coco / "annotations" / "instances_val.json").write_text("{,")
    with pytest.raises(UserError, match=r"instances_val\.json is not JSON"):
        open_source(f"coco:{coco}@val")
    assert coco_splits(coco) == ["train2017", "val"]


def test_an_image_of_another_size_than_annotated_is_broken(coco):
    picture(coco / "train2017" / "20.png", (9, 6))
    with pytest.raises(UserError, match=r"20\.png: 6 × 9 pixels .* for 6 × 8"):
        opened(coco).load(1)


def test_an_image_that_was_replaced_since_is_broken(coco):
    source = opened(coco)
    source.load(1)
    picture(coco / "train2017" / "20.png", shade=99)
    os.utime(coco / "train2017" / "20.png", ns=(1, 1))
    with pytest.raises(UserError, match=r"20\.png: not the file that was there"):
        source.load(1)
    source.load(2)


def test_fingerprint_sees_annotations_and_images(coco):
    seen = {opened(coco).fingerprint()}
    assert opened(coco).fingerprint() in seen
    file = coco / "annotations" / "instances_train2017.json"
    file.write_text(file.read_text().replace('"owl"', '"elk"'))
    seen.add(opened(coco).fingerprint())
    os.utime(coco / "train2017" / "10.png", ns=(1, 1))
    seen.add(opened(coco).fingerprint())
    assert len(seen) == 3


# ----------------------------------------------------------------------------------- VOC


def test_voc_set(voc):
    source = open_source(f"voc:{voc}@trainval")
    assert source.categories == CLASSES == tuple(sorted(CLASSES))
    assert source.identifier(0) == "a1.jpg"
    assert source.path(1) == voc / "JPEGImages" / "a2.jpg"
    objects = source.objects(0)
    # From pixels counted from 1, the last one included, to edges counted from 0.
    assert objects.boxes_N4.tolist() == [[0, 0, 8, 6], [2, 1, 4, 5]]
    assert objects.area_N.tolist() == [48, 8]
    assert objects.labels_N.tolist() == [CLASSES.index("dog"), CLASSES.index("cat")]
    assert objects.difficult_N.tolist() == [False, True]
    label_MC = source.multilabels["objects"]
    assert {CLASSES[c]: label_MC[0, c] for c in np.flatnonzero(label_MC[0])} == {
        "cat": -1, "dog": 1
    }  # fmt: skip
    assert source.load(0).shape == (6, 8, 3)


def test_voc_has_the_classes_of_its_files(tmp_path, caplog):
    root = write_voc(tmp_path, "train", a1=voc_object("dog", (1, 1, 8, 6)))
    write_voc(root, "test", a2=voc_object("helmet", (2, 2, 5, 4)))
    (root / "Annotations" / "broken.xml").write_text("<annotation>")  # of no split
    for split, label, name in (("train", 0, "dog"), ("test", 1, "helmet")):
        source = open_source(f"voc:{root}@{split}")
        assert source.categories == ("dog", "helmet")  # the same in both
        assert source.objects(0).labels_N.tolist() == [label]
        assert source.multilabels["objects"][0, label] == 1
        assert source.categories[label] == name
    assert "1, the first is helmet" in caplog.text


def test_voc_truth_comes_from_the_files_of_classes(voc):
    before = open_source(f"voc:{voc}@trainval").fingerprint()
    truth = voc / "ImageSets" / "Main" / "cat_trainval.txt"
    truth.write_text("a2  0\na1  1\nother -1\n")
    source = open_source(f"voc:{voc}@trainval")
    assert source.multilabels["objects"][:, CLASSES.index("cat")].tolist() == [1, -1]
    assert source.multilabels["objects"][:, CLASSES.index("dog")].tolist() == [1, 0]
    assert source.fingerprint() != before
    assert voc_splits(voc) == ["trainval"]
    for text in ("a1 1\n", "a1 1\na2 5\n", "a1 1\na2\n"):
        truth.write_text(text)
        with pytest.raises(UserError, match=r"cat_trainval\.txt does not fit trainval\.txt"):
            open_source(f"voc:{voc}@trainval")


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("<object><name>dog</name></object>", r"a1\.xml .*<object> lacks <bndbox/xmin>"),
        ("<object>", r"a1\.xml is not written as VOC writes it: mismatched tag"),
        (voc_object("dog", ("nan", 1, 2, 2)), r"a1\.xml is not written as VOC writes it"),
        (voc_object("dog", (1, 1, "1e400", 2)), r"a1\.xml is not written as VOC writes it"),
        (voc_object("dog", (1, 1, "9" * 5000, "?")), r"a1\.xml is not written as VOC writes it"),
        ("<a>" * 100_000 + "</a>" * 100_000, "none of the 1 images"),
        ("", "none of the 1 images"),
    ],
)
def test_voc_files_that_do_not_fit(tmp_path, inside, message):
    root = write_voc(tmp_path / "VOC2007", a1=inside)
    with pytest.raises(UserError, match=message):
        open_source(f"voc:{root}@trainval")


LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))


@pytest.mark.parametrize(
    "content",
    [
        f'<!DOCTYPE x [<!ENTITY a0 "ha">{LAUGHS}]><annotation>&a11;</annotation>',
        '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><annotation>&f;</annotation>',
        "<annotation/>",
        "<annotation><size><width>0</width><height>6</height></size></annotation>",
        "<annotation><size><width>8</width><height>1" + "0" * 400 + "</height></size></annotation>",
        "",
    ],
)
def test_a_voc_file_that_is_none_is_named(voc, content, in_time):
    (voc / "Annotations" / "a1.xml").write_text(content)
    with pytest.raises(UserError, match=r"a1\.xml is not written as VOC writes it"):
        open_source(f"voc:{voc}@trainval")


def test_a_voc_image_of_a_name_that_no_file_has_is_named(voc):
    (voc / "ImageSets" / "Main" / "trainval.txt").write_text("a" * 300)
    with pytest.raises(UserError, match=r"aaa\.xml, though trainval\.txt lists aaa"):
        open_source(f"voc:{voc}@trainval")


@pytest.mark.parametrize("entry", ["../../secret", "/etc/passwd"])
def test_voc_images_outside_of_their_folder_are_refused(voc, entry):
    (voc / "ImageSets" / "Main" / "trainval.txt").write_text(f"a1\n{entry}\n")
    with pytest.raises(UserError, match=rf"trainval\.txt names the image '{entry}', which leads"):
        open_source(f"voc:{voc}@trainval")


def test_voc_images_in_folders_of_their_own(voc):
    for kind, ending in (("Annotations", "xml"), ("JPEGImages", "jpg")):
        (voc / kind / "other").mkdir()
        (voc / kind / "other" / f"a1.{ending}").write_bytes(
            (voc / kind / f"a1.{ending}").read_bytes()
        )
    listed = voc / "ImageSets" / "Main" / "trainval.txt"
    for file in listed.parent.glob("*_trainval.txt"):
        file.unlink()
    listed.write_text("a1\nother/a1\n")
    source = open_source(f"voc:{voc}@trainval")
    assert [source.identifier(index) for index in range(2)] == ["a1.jpg", "other/a1.jpg"]
    listed.write_text("a1\na1\n")
    with pytest.raises(UserError, match=r"trainval\.txt lists a1 more than once"):
        open_source(f"voc:{voc}@trainval")


def test_a_voc_list_that_is_not_text(voc):
    (voc / "ImageSets" / "Main" / "trainval.txt").write_bytes(b"a1\n\xff\n")
    with pytest.raises(UserError, match=r"trainval\.txt is not UTF-8 text"):
        open_source(f"voc:{voc}@trainval")


def test_voc_places_that_do_not_fit(voc):
    with pytest.raises(UserError, match=f"expected voc:FOLDER@SPLIT.*Did you mean voc:{voc}"):
        open_source(f"voc:{voc.parent}@trainval")
    with pytest.raises(UserError, match=r"unknown split of voc:.* 'test'.*trainval"):
        open_source(f"voc:{voc}@test")
    (voc / "JPEGImages" / "a2.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of the 2 images .* the first is a2\.jpg"):
        open_source(f"voc:{voc}@trainval")
    (voc / "Annotations" / "a1.xml").unlink()
    with pytest.raises(UserError, match=r"a1\.xml, though trainval\.txt lists a1"):
        open_source(f"voc:{voc}@trainval")


# ------------------------------------------------------------------------------ canvases


def test_canvases_carry_the_labels_of_what_is_kept(coco, tmp_path):
    (coco / "train2017" / "20.png").write_bytes(b"no image")
    config = DataConfig(f"coco:{coco}@train2017", cache=tmp_path / "cache", max_broken=0.5)
    for canvases in (open_canvas(config, 32), open_canvas(replace(config, cache_limit_gb=0), 32)):
        assert canvases.identifiers == ("10.png", "30.png")
        assert canvases.multilabels["objects"].tolist() == [[1, 1, 0], [1, 0, 0]]
        assert canvases.classes == {"objects": ("cat", "dog", "owl")}
        assert canvases.targets == {}
        assert canvases.subset([1, 1]).multilabels["objects"].tolist() == [[1, 0, 0], [1, 0, 0]]


def test_content_says_what_is_unknown(voc, tmp_path):
    config = DataConfig(f"voc:{voc}@trainval", cache=tmp_path / "cache")
    first = open_canvas(config, 32)
    label_L = first.multilabels["objects"][0]
    assert (label_L[CLASSES.index("cat")], label_L[CLASSES.index("dog")]) == (-1, 1)
    (voc / "ImageSets" / "Main" / "cat_trainval.txt").write_text("a1 -1\na2 -1\n")
    second = open_canvas(config, 32)
    assert second.fingerprint != first.fingerprint  # the same pixels, other labels


def test_sets_joined(tmp_path):
    first = write_voc(tmp_path / "VOC2007", one=voc_object("dog", (2, 1, 5, 4)))
    second = write_voc(
        tmp_path / "VOC2012",
        two=voc_object("cat", (1, 1, 8, 6)),
        three=voc_object("dog", (1, 1, 4, 4), difficult=1),
    )
    spec = f"voc:{first}@trainval+voc:{second}@trainval"
    both = open_source(spec)
    assert isinstance(both, Annotated)
    assert both.name == spec
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
