"""Images with annotated objects, as COCO and Pascal VOC write them.

coco:FOLDER@SPLIT is FOLDER/annotations/instances_SPLIT.json, with its images in the first of
FOLDER/SPLIT, FOLDER/images/SPLIT and FOLDER that is there; coco:FILE.json@FOLDER is any other file,
with its images in FOLDER. voc:FOLDER@SPLIT, where FOLDER is such as VOCdevkit/VOC2007, has

    ImageSets/Main/SPLIT.txt            the images
    Annotations/IMAGE.xml               their objects
    JPEGImages/IMAGE.jpg

Boxes are (x1, y1, x2, y2) in pixels of the upright original, from 0 at the left and top edge to its
width and height at the right and bottom edge. Masks stay as the annotation file has them.

Legend: N objects of one image, M images, C categories.
"""

import hashlib
import json
import logging
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, final
from xml.etree import ElementTree

import numpy as np

from mast.core.errors import UserError, unknown
from mast.core.files import MISSING, named, read_bytes, read_text, spelling, state_of
from mast.data.decode import Opened, open_image, upright_size
from mast.data.registry import SOURCES
from mast.data.source import (
    Scheme,
    SetDescription,
    Source,
    refuse_split,
    unique_names,
)

TASK = "objects"  # which of the categories an image shows, as a task of several labels
Segmentation = list[list[float]] | dict[str, Any]
_log = logging.getLogger("mast")


@final
@dataclass(frozen=True)
class Objects:
    """What is annotated in one image.

    Attributes:
        boxes_N4: (N, 4) float32, inside the image and of some area.
        labels_N: (N,) int64, positions in the set's `categories`.
        masks: N segmentations as COCO writes them, a list of polygons [x, y, x, y, …] or run
            lengths {"counts", "size"}; None for an object without one.
        crowd_N: (N,) bool, whether it stands for several objects (COCO's `iscrowd`).
        difficult_N: (N,) bool, whether it is not to be counted (VOC's `difficult`).
        area_N: (N,) float32 in square pixels: of the mask where the file says so, else of the box.
    """

    boxes_N4: np.ndarray
    labels_N: np.ndarray
    masks: tuple[Segmentation | None, ...]
    crowd_N: np.ndarray
    difficult_N: np.ndarray
    area_N: np.ndarray

    def __len__(self) -> int:
        return len(self.labels_N)

    def select(self, keep_N: np.ndarray) -> "Objects":
        """The objects where `keep_N` (N,) bool is true."""
        arrays = {name: of_N[keep_N] for name, of_N in vars(self).items() if name != "masks"}
        return Objects(masks=tuple(compress(self.masks, keep_N)), **arrays)


@dataclass(frozen=True)
class AnnotatedImage:
    """One image as an annotation file describes it.

    Attributes:
        file: Its path below the folder of images.
        height: Of the upright image, in pixels, as `width`.
        objects: Boxes may still reach outside; an area of NaN stands for that of the box.
    """

    file: str
    height: int
    width: int
    objects: Objects


@final
class Annotated(Source):
    """Images with annotated objects.

    Boxes are clipped to their image; those that then have no area are dropped with a warning.
    There are no `targets`; which categories an image shows is the task "objects" of `multilabels`:
    1 if present, 0 if absent, -1 if all its objects are difficult.

    Args:
        name: What the user called it.
        folder: The folder of images.
        categories: Names of the categories.
        state: A hash of the annotations, for the fingerprint.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        images: Sequence[AnnotatedImage],
        categories: Sequence[str],
        state: str,
    ) -> None:
        self.name = name
        self.folder = folder
        self.categories = tuple(categories)
        self._paths = [named(folder / image.file) for image in images]
        self._files = [*map(state_of, self._paths)]
        if images and all(state == MISSING for state in self._files):
            raise UserError(
                f"none of the {len(images)} images that {name} annotates is in {folder}, the first "
                f"is {images[0].file}: name the folder that holds them"
            )
        self.state = state
        self.images = _inside(name, images)
        if not any(len(image.objects) for image in self.images):
            raise UserError(
                f"none of the {len(images)} images of {name} has an annotated object; expected "
                "annotations with boxes."
            )
        self.targets = {}
        self.classes = {TASK: self.categories}
        label_MC = np.zeros((len(images), len(categories)), np.int8)
        for label_C, image in zip(label_MC, self.images, strict=True):
            objects = image.objects
            label_C[objects.labels_N[objects.difficult_N]] = -1
            label_C[objects.labels_N[~objects.difficult_N]] = 1
        self.multilabels = {TASK: label_MC}

    def __len__(self) -> int:
        return len(self.images)

    def open(self, index: int, page: int = 0) -> Opened:
        image = open_image(self.path(index), self._files[index], page, self.max_pixels)
        width, height = upright_size(image)
        if (height, width) != self.size(index):
            image.close()
            raise ValueError(
                f"{height} × {width} pixels (height × width), where its annotations are for "
                f"{self.size(index)[0]} × {self.size(index)[1]}"
            )
        return image

    def identifier(self, index: int) -> str:
        return self.images[index].file

    def fingerprint(self) -> str:
        return self.hash_files((image.file for image in self.images), self._files, self.state)

    def path(self, index: int) -> Path:
        return self._paths[index]

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of one upright image in pixels, as annotated."""
        return self.images[index].height, self.images[index].width

    def objects(self, index: int) -> Objects:
        """What is annotated in one image; perhaps nothing."""
        return self.images[index].objects


def register() -> None:
    """Name these sets as those of `mast` are."""
    coco = ("coco:FOLDER@train2017", "coco:FILE.json@FOLDER")
    SOURCES["coco"] = Scheme(coco, open_annotated, describe_coco)
    SOURCES["voc"] = Scheme(("voc:VOCdevkit/VOC2007@trainval",), open_annotated, describe_voc)


def open_annotated(spec: str, root: Path, download: bool) -> Annotated:
    """Opens one set, or several that are joined by +."""
    opened = [
        (open_voc if part.startswith("voc:") else open_coco)(part, root, download)
        for part in re.split(r"\+(?=(?:coco|voc):)", spec)
    ]
    return joined(spec, opened) if len(opened) > 1 else opened[0]


def joined(name: str, parts: Sequence[Annotated]) -> Annotated:
    """Several sets with the same categories as one, the images of one after those of another."""
    first = parts[0]
    for part in parts[1:]:
        if part.categories != first.categories:
            raise UserError(
                f"{first.name} and {part.name} cannot be joined: their categories differ, "
                f"{len(first.categories)} and {len(part.categories)}, or others in another order"
            )
    folder = Path(os.path.commonpath([part.folder.absolute() for part in parts]))
    images = [
        replace(image, file=str(part.folder.absolute().relative_to(folder) / image.file))
        for part in parts
        for image in part.images
    ]
    state = " ".join(part.state for part in parts)
    return Annotated(name, folder, images, first.categories, state)


def with_objects(source: Source) -> Annotated:
    """The source, if objects are annotated in its images."""
    if isinstance(source, Annotated):
        return source
    raise UserError(
        f"{source.name} has no annotated objects, which detection, segmentation and the joining of "
        "sets by + need: expected coco:FOLDER, coco:FILE.json@FOLDER or voc:FOLDER."
    )


def object_parts(name: str, splits: Mapping[str, str | None]) -> SetDescription:
    """The parts of a set, from what it calls its splits, by part; None where it has none."""
    parts = {part: f"{name}@{split}" for part, split in splits.items() if split is not None}
    if not parts:
        refuse_split(name)
        raise UserError(
            f"no annotated train, val or test split in {name}: expected coco:FOLDER with "
            "annotations/instances_train2017.json or the like, or voc:FOLDER with "
            "ImageSets/Main/trainval.txt or the like."
        )
    return SetDescription(parts, "mAP")


def _below(file: Any) -> str:
    """A path below the folder of images, with the slashes of this system."""
    path = posixpath.normpath(str(file).replace("\\", "/"))
    if path.startswith(("/", "..")) or path[1:2] == ":":
        raise ValueError(f"the image {file!r:.80} lies outside the folder of images")
    return path


def _sides(height: Any, width: Any) -> tuple[int, int]:
    sides = int(height), int(width)
    if min(sides) < 1:
        raise ValueError(f"an image has {height} × {width} pixels")
    return sides


def _inside(name: str, images: Sequence[AnnotatedImage]) -> list[AnnotatedImage]:
    """The images with boxes clipped to them; what then has no area is dropped with a warning."""
    inside, dropped = [], []
    for image in images:
        objects = image.objects
        limit_4 = np.array([image.width, image.height] * 2, np.float32)
        boxes_N4 = np.clip(objects.boxes_N4.astype(np.float32), 0, limit_4)
        area_N = (boxes_N4[:, 2] - boxes_N4[:, 0]) * (boxes_N4[:, 3] - boxes_N4[:, 1])
        # Written so that a NaN in a box drops it.
        keep_N = (boxes_N4[:, 2] > boxes_N4[:, 0]) & (boxes_N4[:, 3] > boxes_N4[:, 1])
        dropped += [image.file] * int((~keep_N).sum())
        area_N = np.where(np.isnan(objects.area_N), area_N, objects.area_N).astype(np.float32)
        objects = replace(objects, boxes_N4=boxes_N4, area_N=area_N).select(keep_N)
        inside.append(replace(image, objects=objects))
    if dropped:
        _log.warning(
            "%d of %d boxes of %s lie outside their image or have no area and are dropped, the "
            "first in %s.",
            len(dropped), sum(len(image.objects) for image in images), name, dropped[0],
        )  # fmt: skip
    return inside


_LEAST = 6  # numbers of a polygon: three points; one of fewer covers nothing
_BEFORE, _AFTER = "instances_", ".json"


def open_coco(spec: str, _root: Path, _download: bool) -> Annotated:
    """Opens a set by its name, as in this module's summary."""
    before, _, after = spec.removeprefix("coco:").rpartition("@")
    if not before:
        before, after = after, ""
    place = named(before)
    if before.endswith(_AFTER):
        images = named(after or place.parent)
        for path, kind in ((place, "file"), (images, "folder")):
            if not (path.is_file() if kind == "file" else path.is_dir()):
                raise UserError(f"no {kind} {path}: expected coco:FILE.json@FOLDER, got {spec!r}.")
        return read_coco(spec, place, images)
    splits = coco_splits(place)
    if not splits:
        raise UserError(
            f"no {place}/annotations/{_BEFORE}SPLIT{_AFTER}: expected coco:FOLDER@SPLIT with "
            f"such a file, or coco:FILE.json@FOLDER; got {spec!r}."
        )
    if after not in splits:
        raise unknown(f"split of coco:{before}", after, splits)
    choices = (place / after, place / "images" / after, place)
    folder = next(choice for choice in choices if choice.is_dir())
    return read_coco(spec, place / "annotations" / f"{_BEFORE}{after}{_AFTER}", folder)


def describe_coco(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The newest splits of coco:FOLDER.

    COCO is scored on val, as its test labels are not public; other sets may have both.
    """
    splits = coco_splits(named(spec.removeprefix("coco:")))
    train, val, test = (_newest(splits, prefix) for prefix in ("train", "val(?:id)?", "test"))
    return object_parts(spec, {"train": train, "val": val if test else None, "test": test or val})


def coco_splits(folder: Path) -> list[str]:
    """The splits whose instances are annotated in a folder laid out as COCO; perhaps none."""
    files = sorted((folder / "annotations").glob(f"{_BEFORE}*{_AFTER}"))
    return [file.name.removeprefix(_BEFORE).removesuffix(_AFTER) for file in files]


def read_coco(name: str, annotations: Path, images: Path) -> Annotated:
    """Reads an annotation file.

    Images and categories come in the order of their numbers. File names are relative to `images`.
    """
    content = read_bytes(annotations)
    try:
        document = json.loads(content)
        numbered, rows, objects = (_by_id(document, name) for name in _LISTS)
        names = unique_names([str(row["name"]) for row in numbered.values()], list(numbered))
        label = {number: position for position, number in enumerate(numbered)}
        of_image: dict[Any, list[dict[str, Any]]] = {number: [] for number in rows}
        for row in objects.values():
            if row["image_id"] not in rows or row["category_id"] not in label:
                raise ValueError(
                    f"an annotation is of image {row['image_id']!r} and category "
                    f"{row['category_id']!r}, and one of them is not listed"
                )
            of_image[row["image_id"]].append(row)
        found = [
            AnnotatedImage(
                _below(row["file_name"]),
                *(sides := _sides(row["height"], row["width"])),
                _objects(of_image[number], label, sides),
            )
            for number, row in rows.items()
        ]
    except KeyError as error:
        raise UserError(
            f"{annotations} is not written as COCO writes it: an entry lacks {error}"
        ) from error
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"{annotations} is not written as COCO writes it: {error}") from error
    state = hashlib.blake2b(content, digest_size=16).hexdigest()
    return Annotated(name, images, found, names, state)


def _newest(splits: Sequence[str], prefix: str) -> str | None:
    """The split of that name, with the highest year if it has one: train2017, not train2014."""
    return max((name for name in splits if re.fullmatch(rf"{prefix}\d*", name)), default=None)


_LISTS = ("categories", "images", "annotations")


def _by_id(document: dict[str, Any], name: str) -> dict[Any, dict[str, Any]]:
    """The entries of a list, by their numbers; annotations need none."""
    if not isinstance(document, dict) or not isinstance(document.get(name), list):
        raise ValueError(f"expected the lists {', '.join(_LISTS)}, and {name} is none")
    rows = document[name]
    if name == "annotations":
        return dict(enumerate(rows))
    by_id = {row["id"]: row for row in rows}
    if len(by_id) < len(rows):
        raise ValueError(f"two of its {name} have one id")
    return dict(sorted(by_id.items()))


def _objects(rows: list[dict[str, Any]], label: dict[Any, int], size: tuple[int, int]) -> Objects:
    """The objects of one image of that height and width."""
    boxes_N4 = np.array([row["bbox"] for row in rows], np.float64).reshape(len(rows), 4)
    boxes_N4[:, 2:] += boxes_N4[:, :2]  # COCO has the corner and the two sides
    return Objects(
        boxes_N4=boxes_N4,
        labels_N=np.array([label[row["category_id"]] for row in rows], np.int64),
        masks=tuple(_mask(row.get("segmentation"), size) for row in rows),
        crowd_N=np.array([row.get("iscrowd", 0) for row in rows], bool),
        difficult_N=np.zeros(len(rows), bool),
        area_N=np.array([row.get("area", np.nan) for row in rows], np.float64),
    )


def _mask(mask: Any, size: tuple[int, int]) -> Segmentation | None:
    """An annotation's segmentation; None where it cannot be drawn."""
    if isinstance(mask, dict):
        return mask if mask.get("size") == [*size] and "counts" in mask else None
    if not isinstance(mask, list):
        return None
    polygons = mask if all(isinstance(polygon, list) for polygon in mask) else [mask]
    return [polygon for polygon in polygons if len(polygon) >= _LEAST] or None


VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip
_LISTED = "ImageSets/Main"  # the folder of the lists


def open_voc(spec: str, _root: Path, _download: bool) -> Annotated:
    """Opens a set by its name, as in this module's summary."""
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


def describe_voc(spec: str, _root: Path, _download: bool) -> SetDescription:
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
    names = [path.stem for path in sorted((folder / _LISTED).glob("*.txt"))]
    return [name for name in names if "_" not in name]  # the others are of one class


def read_voc(name: str, folder: Path, split: str) -> Annotated:
    """Reads the objects of a split, such as "trainval", whose list is in the folder of a year."""
    file = folder / _LISTED / f"{split}.txt"
    numbers = dict.fromkeys(
        line.split()[0] for line in read_text(file).splitlines() if line.strip()
    )
    state = hashlib.blake2b(" ".join(numbers).encode(), digest_size=16)
    images, found = [], dict[str, int]()
    for number in numbers:
        path = named(folder / "Annotations" / f"{number}.xml")
        content = read_bytes(path)
        state.update(content)
        try:
            images.append(_read_image(f"{number}.jpg", content, found))
        except (ElementTree.ParseError, ValueError) as error:
            raise UserError(f"{path} is not written as VOC writes it: {error}") from error
    classes = _classes(folder, found)
    number_C = np.array([classes.index(of) for of in found], np.int64)
    images = [
        replace(image, objects=replace(image.objects, labels_N=number_C[image.objects.labels_N]))
        for image in images
    ]
    state.update("\n".join(classes).encode())
    return Annotated(name, folder / "JPEGImages", images, classes, state.hexdigest())


def _classes(folder: Path, found: Mapping[str, int]) -> tuple[str, ...]:
    """VOC's classes, or those of all annotations of a folder with others, so that splits agree."""
    names = set(found)
    if names == set(VOC_CLASSES):
        return VOC_CLASSES
    for path in (folder / "Annotations").glob("*.xml"):
        with suppress(ElementTree.ParseError, UserError):  # of another split
            elements = ElementTree.fromstring(read_bytes(path)).iterfind("object/name")
            names |= {spelling((element.text or "").strip()) for element in elements}
    return VOC_CLASSES if names <= set(VOC_CLASSES) else tuple(sorted(names))


def _read_image(file: str, content: bytes, found: dict[str, int]) -> AnnotatedImage:
    """What one XML file says of an image file; its classes are numbered as they are found."""
    root = ElementTree.fromstring(content)
    elements = root.findall("object")
    sides = ("xmin", "ymin", "xmax", "ymax")
    boxes = [[float(_text(item, f"bndbox/{side}")) for side in sides] for item in elements]
    names = [spelling(_text(item, "name").strip()) for item in elements]
    difficult = [int(item.findtext("difficult") or 0) for item in elements]
    # VOC counts pixels from 1 and includes the last one.
    boxes_N4 = np.array(boxes, np.float64).reshape(len(elements), 4) - [1, 1, 0, 0]
    objects = Objects(
        boxes_N4=boxes_N4,
        labels_N=np.array([found.setdefault(name, len(found)) for name in names], np.int64),
        masks=(None,) * len(elements),
        crowd_N=np.zeros(len(elements), bool),
        difficult_N=np.array(difficult, bool),
        area_N=np.full(len(elements), np.nan),
    )
    size = _sides(_text(root, "size/height"), _text(root, "size/width"))
    return AnnotatedImage(_below(file), *size, objects)


def _text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"<{element.tag}> lacks <{path}>")
    return text
