"""Annotated objects as COCO and as VOC write them, and what they become."""

import json
import os
from typing import Any

import numpy as np
import pytest
from layouts import SQUARE, box, coco_document, picture, voc_object, write_coco, write_voc
from PIL import Image

from mast.core.errors import UserError
from mast.data import open_source
from mast.data.registry import describe
from paper.annotated import VOC_CLASSES, Annotated

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
    with pytest.raises(UserError, match=r"20\.png: the file changed since"):
        source.load(1)
    source.load(2)


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


def test_voc_has_the_classes_of_its_files(tmp_path):
    root = write_voc(tmp_path, "train", a1=voc_object("dog", (1, 1, 8, 6)))
    write_voc(root, "test", a2=voc_object("helmet", (2, 2, 5, 4)))
    (root / "Annotations" / "broken.xml").write_text("<annotation>")  # of no split
    for split, label in (("train", 0), ("test", 1)):
        source = open_source(f"voc:{root}@{split}")
        assert source.categories == ("dog", "helmet")  # the same in both
        assert source.objects(0).labels_N.tolist() == [label]
        assert source.multilabels["objects"][0, label] == 1


# ----------------------------------------------------------------------- what does not fit


def images(*entries):
    """A document of one image or more, of which one has an object."""
    whole = [{"id": 1, "file_name": "10.png", "width": 8, "height": 6} | each for each in entries]
    return {"images": whole, "annotations": [box(whole[0]["id"], 3, [0, 0, 1, 1])]}


def annotation(**changes):
    return {"annotations": [{**box(10, 3, [0, 0, 1, 1]), "id": 77, **changes}]}


NO_COCO: list[tuple[dict[str, Any], str]] = [
    ({"annotations": []}, "none of the 3 images .* has an annotated object"),
    ({"categories": None}, "categories"),
    (annotation(category_id=4), "category 4"),
    ({"annotations": [{"image_id": 10, "category_id": 3}]}, "an entry lacks 'bbox'"),
    ({"categories": [{"id": 3, "name": "a"}] * 2}, "two of its categories have one id"),
    (images({"file_name": "gone.png"}), r"none of the 1 images .* is in .*train2017.* gone\.png"),
    (images({"file_name": "../../secret.png"}), "outside the folder"),
    (images({"width": -8}), "is not written as COCO"),
    (annotation(bbox=[0, 0, 1]), "is not written as COCO"),
]


@pytest.mark.parametrize(("changes", "message"), NO_COCO, ids=range(len(NO_COCO)))
def test_coco_files_that_do_not_fit(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        opened(write_coco(tmp_path / "coco", **changes))


BROKEN = {
    (INSTANCES, "{,"): r"instances_train2017\.json is not written as COCO",
    ("Annotations/a1.xml", "<annotation/>"): r"a1\.xml is not written as VOC",
    (LIST, "a1\na3"): r"a3\.xml",
    (LIST, "../../secret"): "secret",
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN, ids=range(len(BROKEN)))
def test_broken_files_are_named(coco, voc, case):
    (coco if case[0] == INSTANCES else voc).joinpath(case[0]).write_text(case[1])
    with pytest.raises(UserError, match=BROKEN[case]):
        [opened(coco), open_source(f"voc:{voc}@trainval")]


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


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        (["train2014", "train2017", "val2014"], {"train": "train2017", "test": "val2014"}),
        (["train", "valid", "test"], {"train": "train", "val": "valid", "test": "test"}),
        (["train2017", "valminusminival2014"], {"train": "train2017"}),
    ],
)
def test_coco_parts(tmp_path, splits, expected):
    for split in splits:
        write(tmp_path / "annotations" / f"instances_{split}.json", "{}")
    described = describe(f"coco:{tmp_path}")
    assert described.parts == {part: f"coco:{tmp_path}@{split}" for part, split in expected.items()}
    assert described.metric == "mAP"


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        # VOC 2007: what may be learned from is train and val, which together are trainval.
        (["train", "val", "trainval", "test"], {"train": "train", "val": "val", "test": "test"}),
        (["train", "val", "trainval"], {"train": "train", "test": "val"}),
    ],
)
def test_voc_parts(tmp_path, splits, expected):
    for split in splits:
        write_voc(tmp_path, split, **{f"{split}1": voc_object("dog", (1, 1, 8, 6))})
    write(tmp_path / "ImageSets" / "Main" / "dog_trainval.txt", "trainval1 1")
    described = describe(f"voc:{tmp_path}")
    assert described.parts == {part: f"voc:{tmp_path}@{split}" for part, split in expected.items()}
    assert described.metric == "mAP"
    for spec in described.parts.values():
        assert len(open_source(spec)) == 1
