"""Sets annotated as Pascal VOC is: one XML file an image, and lists of the images of a split.

    voc:FOLDER@SPLIT      FOLDER is VOCdevkit/VOC2007 or one of another year:
        ImageSets/Main/SPLIT.txt            the images
        ImageSets/Main/CLASS_SPLIT.txt      which of them show a class; from the XML if missing
        Annotations/IMAGE.xml               their objects
        JPEGImages/IMAGE.jpg

Legend: M images.
"""

import hashlib
import logging
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from mast.core.errors import UserError, unknown
from mast.core.files import named, read_bytes, read_text
from mast.data.annotated import (
    TASK,
    Annotated,
    AnnotatedImage,
    Objects,
    inside_folder,
    object_parts,
    pixels,
)
from mast.data.source import SetDescription

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip

_log = logging.getLogger("mast")
_TRUTH = {1: 1, -1: 0, 0: -1}  # VOC's present, absent, difficult → ours


def open_voc(spec: str, _root: Path, _download: bool) -> Annotated:
    """Opens a set by its name.

    Args:
        spec: As in this module's summary.

    Raises:
        UserError: If there is no such folder or split, or the files do not fit each other.
    """
    before, _, split = spec.removeprefix("voc:").rpartition("@")
    if not before:
        before, split = split, ""
    folder = named(before)
    splits = voc_splits(folder)
    if not splits:
        inside = [path.parent.parent for path in sorted(folder.glob("*/ImageSets/Main"))]
        hint = f" Did you mean voc:{inside[0]}?" if inside else ""
        raise UserError(
            f"no {folder}/ImageSets/Main/SPLIT.txt: expected voc:FOLDER@SPLIT, where FOLDER is "
            f"such as VOCdevkit/VOC2007; got {spec!r}.{hint}"
        )
    if split not in splits:
        raise unknown(f"split of voc:{before}", split, splits)
    return read_voc(spec, folder, split)


def describe_voc(spec: str) -> SetDescription:
    """The splits of voc:FOLDER.

    VOC 2007 learns from train and val together and is scored on test; later years keep test back.
    """
    splits = voc_splits(named(spec.removeprefix("voc:")))
    train, val, trainval, test = (
        name if name in splits else None for name in ("train", "val", "trainval", "test")
    )
    if test is None:
        return object_parts(spec, {"train": train, "test": val})
    if train and val:
        return object_parts(spec, {"train": train, "val": val, "test": test})
    return object_parts(spec, {"train": trainval or train, "test": test})


def voc_splits(folder: Path) -> list[str]:
    """The splits of a folder laid out as VOC; perhaps none."""
    names = [path.stem for path in sorted(_lists(folder).glob("*.txt"))]
    return [name for name in names if "_" not in name]  # the others are one class's


def read_voc(name: str, folder: Path, split: str) -> Annotated:
    """Reads the objects of a split.

    Args:
        name: What the user called the set.
        folder: Of one year, such as VOCdevkit/VOC2007.
        split: Such as "trainval"; its list is there.

    Raises:
        UserError: If a file is missing, damaged, about other images or names one elsewhere.
    """
    state = hashlib.blake2b(digest_size=16)
    file = _lists(folder) / f"{split}.txt"
    listed = read_text(file)
    state.update(listed.encode())
    numbers = [inside_folder(file, line.split()[0]) for line in listed.splitlines() if line.strip()]
    if len(set(numbers)) < len(numbers):
        raise UserError(f"{file} lists {Counter(numbers).most_common(1)[0][0]} more than once")
    images, found = [], dict[str, int]()
    for number in numbers:
        path = folder / "Annotations" / f"{number}.xml"
        if not os.path.exists(path):  # Path.exists raises of a name that is too long
            raise UserError(f"no {path}, though {split}.txt lists {number}.")
        content = read_bytes(path)
        state.update(content)
        images.append(_image(path, f"{number}.jpg", content, found))
    classes = _classes(folder, found)
    number_C = np.array([classes.index(of) for of in found], np.int64)
    images = [
        replace(image, objects=replace(image.objects, labels_N=number_C[image.objects.labels_N]))
        for image in images
    ]
    truth = _truth(folder, split, numbers, classes)
    for label_M in truth.values():
        state.update(label_M.tobytes())
    if classes != CLASSES:
        state.update("\n".join(classes).encode())
    categories = dict(enumerate(classes, start=1))
    source = Annotated(name, folder / "JPEGImages", images, categories, state.hexdigest())
    for label, label_M in truth.items():
        source.multilabels[TASK][:, label] = label_M
    return source


def _lists(folder: Path) -> Path:
    return folder / "ImageSets" / "Main"


def _classes(folder: Path, found: Mapping[str, int]) -> tuple[str, ...]:
    """VOC's classes, or those of all annotations of a folder with others, so that splits agree."""
    if set(CLASSES) == found.keys():
        return CLASSES
    names = set(found)
    for path in (folder / "Annotations").glob("*.xml"):
        with suppress(ElementTree.ParseError, UserError, OSError):  # of another split
            elements = ElementTree.fromstring(read_bytes(path)).iterfind("object/name")
            names |= {(element.text or "").strip() for element in elements}
    if names <= set(CLASSES):
        return CLASSES
    own = sorted(names - set(CLASSES))
    _log.warning("%s has classes of its own: %d, the first is %s", folder, len(own), own[0])
    return tuple(sorted(names))


def _image(path: Path, file: str, content: bytes, found: dict[str, int]) -> AnnotatedImage:
    """What one XML file says of an image file; its classes are numbered as they are found."""
    try:
        root = ElementTree.fromstring(content)
        elements = root.findall("object")
        boxes = [
            [_number(item, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
            for item in elements
        ]
        names = [_text(item, "name").strip() for item in elements]
        height, width = (pixels(_text(root, f"size/{side}")) for side in ("height", "width"))
        difficult_N = np.array([int(item.findtext("difficult") or 0) for item in elements], bool)
    except (ElementTree.ParseError, ValueError) as error:
        raise UserError(f"{path} is not written as VOC writes it: {error}.") from error
    # VOC counts pixels from 1 and includes the last one.
    boxes_N4 = np.array(boxes, np.float64).reshape(len(elements), 4) - [1, 1, 0, 0]
    objects = Objects(
        boxes_N4=boxes_N4,
        labels_N=np.array([found.setdefault(name, len(found)) for name in names], np.int64),
        masks=(None,) * len(elements),
        crowd_N=np.zeros(len(elements), bool),
        difficult_N=difficult_N,
        area_N=np.full(len(elements), np.nan),
    )
    return AnnotatedImage(file, height, width, objects)


def _text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"<{element.tag}> lacks <{path}>")
    return text


def _number(element: ElementTree.Element, path: str) -> float:
    number = float(_text(element, path))
    if not math.isfinite(number):
        raise ValueError(f"<{path}> is {number}")
    return number


def _truth(
    folder: Path, split: str, numbers: list[str], classes: Sequence[str]
) -> dict[int, np.ndarray]:
    """Labels (M,) int8 of the classes that have a file of their own, by class."""
    truth = {}
    for label, name in enumerate(classes):
        path = _lists(folder) / f"{name}_{split}.txt"
        if "/" in name or not os.path.exists(path):
            continue
        text = read_text(path)
        try:
            rows = [line.split() for line in text.splitlines() if line.strip()]
            label_of = {number: _TRUTH[int(value)] for number, value in rows}
            truth[label] = np.array([label_of[number] for number in numbers], np.int8)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"{path} does not fit {split}.txt: expected a line for each of its "
                f"{len(numbers)} images with 1, -1 or 0 behind it ({error})."
            ) from error
    return truth
