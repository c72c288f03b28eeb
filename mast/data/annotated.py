"""Images with annotated objects, as COCO and Pascal VOC write them.

coco:FOLDER@SPLIT is FOLDER/annotations/instances_SPLIT.json, with its images in the first of
FOLDER/SPLIT, FOLDER/images/SPLIT and FOLDER that is there; coco:FILE.json@FOLDER is any other file,
with its images in FOLDER. voc:FOLDER@SPLIT, where FOLDER is such as VOCdevkit/VOC2007, has

    ImageSets/Main/SPLIT.txt            the images
    ImageSets/Main/CLASS_SPLIT.txt      which of them show a class; from the XML if missing
    Annotations/IMAGE.xml               their objects
    JPEGImages/IMAGE.jpg

Boxes are (x1, y1, x2, y2) in pixels of the upright original, from 0 at the left and top edge to its
width and height at the right and bottom edge. Masks stay as the annotation file has them.

Legend: N objects of one image, M images, C categories.
"""

import hashlib
import logging
import math
import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path, PureWindowsPath
from typing import Any, final
from xml.etree import ElementTree

import numpy as np

from mast.core.errors import UserError, unknown
from mast.core.files import named, parse_json, read_bytes, read_text, spelling, state_of
from mast.data.decode import Opened, open_image, upright_size
from mast.data.folder import walk
from mast.data.source import SetDescription, Source, refuse_split, split_names, unique_names

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
    1 for one it shows, 0 for one it does not, -1 for one of which all objects are difficult.

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
        self._files = [state_of(folder / image.file) for image in images]
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
        return self.folder / self.images[index].file

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of one upright image in pixels, as annotated."""
        return self.images[index].height, self.images[index].width

    def objects(self, index: int) -> Objects:
        """What is annotated in one image; perhaps nothing."""
        return self.images[index].objects


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
    union = Annotated(name, folder, images, first.categories, state)
    union.multilabels = {TASK: np.concatenate([part.multilabels[TASK] for part in parts])}
    return union


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
    parts = split_names(name, splits)
    if not parts:
        refuse_split(name)
        raise UserError(
            f"no annotated train, val or test split in {name}: expected coco:FOLDER with "
            "annotations/instances_train2017.json or the like, or voc:FOLDER with "
            "ImageSets/Main/trainval.txt or the like."
        )
    return SetDescription(parts, "mAP")


def inside_folder(annotations: Path, entry: str) -> str:
    """A name of an image as a file of annotations has it, if it does not lead elsewhere.

    Links inside the folder of images are the user's own and may lead anywhere.
    """
    path = PureWindowsPath(entry)  # which knows both kinds of slashes
    if path.root or ".." in path.parts:
        raise UserError(
            f"{annotations} names the image {entry!r}, which leads out of the folder of images: "
            "write its path below that folder."
        )
    return entry


def pixels(annotated: Any) -> int:
    """A height or a width as a file of annotations has it."""
    side = int(annotated)
    if not 1 <= side < 2**31:
        raise ValueError(f"an image has a side of {annotated!r:.40} pixels")
    return side


_SHARES = 1.5  # above shares of an image, even if rounded, and below pixels


def _found(name: str, folder: Path, images: Sequence[AnnotatedImage]) -> list[AnnotatedImage]:
    """The images by the names of their files, whose slashes, case or ending may be others.

    One that is missing stays, to be counted as broken.
    """
    missing = {image.file for image in images if state_of(folder / image.file)[0] < 0}
    if not missing:
        return [*images]
    alike: dict[str, list[str]] = defaultdict(list)  # files that no image names, by both keys
    for path in {path for path, _, _ in walk(folder).images} - {image.file for image in images}:
        for key in _keys(path):
            alike[key].append(path)
    files = dict[str, str]()
    for file in sorted(missing):
        ways = (alike[key] for key in _keys(file))
        if one := next((way[0] for way in ways if len(way) == 1), ""):
            files[file] = one
            for key in _keys(one):
                alike[key].remove(one)
    if len(files) < len(missing) == len(images):
        raise UserError(
            f"{len(missing) - len(files)} of the {len(images)} images that {name} annotates are "
            f"not in {folder}, the first is {min(missing - files.keys())}. Put them there, or name "
            "the folder that holds them."
        )
    if files:
        file, one = next(iter(files.items()))
        _log.warning(
            "%s names %d of %d images otherwise than their files are called, such as %s for %s.",
            name, len(files), len(images), file, one,
        )  # fmt: skip
    return [replace(image, file=files.get(image.file, image.file)) for image in images]


def _keys(file: str) -> tuple[str, str]:
    """What is alike of names that differ in slashes, case or form, and of such in their ending."""
    whole = posixpath.normpath(spelling(file).replace("\\", "/")).casefold()
    return whole, posixpath.splitext(whole)[0] + "."


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
    boxes_M4 = np.concatenate([np.empty((0, 4)), *(image.objects.boxes_N4 for image in inside)])
    sides_M2 = boxes_M4[:, 2:] - boxes_M4[:, :2]
    if len(boxes_M4) and boxes_M4.max() < _SHARES and sides_M2.min() < 1:
        raise UserError(
            f"{name} has no box beyond the first pixel: its boxes are in another unit, such as "
            "shares of an image, where pixels are expected"
        )
    if dropped:
        _log.warning(
            "%d of %d boxes of %s lie outside their image or have no area and are dropped, the "
            "first in %s.",
            len(dropped), sum(len(image.objects) for image in images), name, dropped[0],
        )  # fmt: skip
    return inside


_LISTS = ("images", "annotations", "categories")
_NUMBERS, _FAR = frozenset((int, float)), 1e12
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

    COCO is scored on its val, as the labels of its test are kept back; other sets may have both.
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
    document, state = _read_document(annotations)
    try:
        numbered = {row["id"]: str(row["name"]) for row in _by_id(document["categories"])}
        names = unique_names(list(numbered.values()), list(numbered))
        rows = _by_id(document["images"])
        of_image: dict[Any, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
        for key, known in (("image_id", of_image), ("category_id", numbered)):
            every = [row[key] for row in document["annotations"]]
            if strays := [number for number in every if number not in known]:
                raise UserError(
                    f"{len(strays)} of {len(every)} annotations in {annotations} have a {key} that "
                    f"is none of its {len(known)} listed, the first is {strays[0]!r}. Is this the "
                    "file of another set?"
                )
        for row in document["annotations"]:
            of_image[row["image_id"]].append(row)
        numbers = [row["id"] for row in document["annotations"] if row.get("id") is not None]
        if (twice := _twice(numbers)) is not None:
            raise ValueError(f"two annotations have the id {twice}")
        if (twice := _twice(_file_name(row) for row in rows)) is not None:
            raise ValueError(f"two images name the file {twice}")
        label = {number: position for position, number in enumerate(numbered)}
        annotated = [
            AnnotatedImage(
                inside_folder(annotations, _file_name(row)),
                height := pixels(row["height"]),
                width := pixels(row["width"]),
                _objects(of_image[row["id"]], label, (height, width)),
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{annotations} is not written as COCO writes it: "
            f"{f'an entry lacks {error}' if isinstance(error, KeyError) else error}."
        ) from error
    undrawn = [
        f"{of_object.get('id')!r:.40} of {image.file}"
        for row, image in zip(rows, annotated, strict=True)
        for of_object, mask in zip(of_image[row["id"]], image.objects.masks, strict=True)
        if mask is None and of_object.get("segmentation")
    ]
    if undrawn:
        _log.warning(
            "%s: segmentations that cannot be drawn in their image are left out: %d of %d, the "
            "first is %s.", annotations, len(undrawn), len(document["annotations"]), undrawn[0],
        )  # fmt: skip
    return Annotated(name, images, _found(name, images, annotated), names, state)


def _newest(splits: Sequence[str], prefix: str) -> str | None:
    """The split of that name, with the highest year if it has one: train2017, not train2014."""
    return max((name for name in splits if re.fullmatch(rf"{prefix}\d*", name)), default=None)


def _read_document(path: Path) -> tuple[dict[str, Any], str]:
    """The document, and a hash of it."""
    content = read_bytes(path)
    try:
        document = parse_json(content, finite=False)  # what is used of it is looked at
    except ValueError as error:
        raise UserError(f"{path} {error}.") from error
    lists = document if isinstance(document, dict) else {}
    missing = [name for name in _LISTS if not isinstance(lists.get(name), list)]
    if missing:
        raise UserError(
            f"{path} has no list of {' and of '.join(missing)}: expected COCO's instances, with "
            f"{', '.join(_LISTS)}; it has {', '.join(map(str, lists)) or 'none'}."
        )
    for name in _LISTS:
        for entry in lists[name]:
            if not isinstance(entry, dict):
                raise UserError(f"{path} has {entry!r:.80} among its {name}: expected an object.")
    return lists, hashlib.blake2b(content, digest_size=16).hexdigest()


def _twice(values: Iterable[Any]) -> Any:
    """A value that comes more than once; None if there is none."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if (twice := _twice(row["id"] for row in rows)) is not None:
        raise ValueError(f"two entries have the id {twice}")
    return sorted(rows, key=lambda row: row["id"])


def _file_name(row: dict[str, Any]) -> str:
    if not isinstance(row["file_name"], str):
        raise ValueError(f"the image {row['id']!r} has the file_name {row['file_name']!r:.80}")
    return posixpath.normpath(row["file_name"])


def _objects(rows: list[dict[str, Any]], label: dict[Any, int], size: tuple[int, int]) -> Objects:
    """The objects of one image of that height and width."""
    for row in rows:
        _check(row)
    boxes_N4 = np.array([row["bbox"] for row in rows], np.float64).reshape(len(rows), 4)
    boxes_N4[:, 2:] += boxes_N4[:, :2]  # COCO has the corner and the two sides
    return Objects(
        boxes_N4=boxes_N4,
        labels_N=np.array([label[row["category_id"]] for row in rows], np.int64),
        masks=tuple(_mask(row, size) for row in rows),
        crowd_N=np.array([row.get("iscrowd", 0) for row in rows], bool),
        difficult_N=np.zeros(len(rows), bool),
        area_N=np.array([row.get("area", np.nan) for row in rows], np.float64),
    )


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBERS and -_FAR < value < _FAR


def _check(row: dict[str, Any]) -> None:
    """Refuses an annotation of which a field is not of COCO's type."""
    bbox = row["bbox"]
    fitting = {
        "bbox": isinstance(bbox, list) and len(bbox) == 4 and all(map(_is_number, bbox)),
        "iscrowd": row.get("iscrowd", 0) in (0, 1),
        "area": row.get("area") is None or _is_number(row["area"]),
    }
    for field, fits in fitting.items():
        if not fits:
            raise ValueError(
                f"the annotation {row.get('id')!r:.40} of the image {row['image_id']!r:.40} has "
                f"the {field} {row[field]!r:.80}"
            )


def _mask(row: dict[str, Any], size: tuple[int, int]) -> Segmentation | None:
    """An annotation's segmentation, None where it cannot be drawn."""
    mask = row.get("segmentation") or None
    if isinstance(mask, list):
        side = max(size)
        if _NUMBERS.issuperset(map(type, mask)):  # one polygon, not in a list of several
            mask = [mask]
        polygons = [of for of in mask if not isinstance(of, list) or len(of) >= _LEAST]
        fits = all(
            isinstance(polygon, list)
            and len(polygon) % 2 == 0
            and _NUMBERS.issuperset(map(type, polygon))
            and -side <= min(polygon) <= max(polygon) <= 2 * side  # else it may take all memory
            for polygon in polygons
        )
        return polygons if polygons and fits else None
    if not isinstance(mask, dict) or mask.get("size") != [*size]:
        return None
    counts = mask.get("counts")
    if isinstance(counts, list):
        whole = all(type(count) is int and count >= 0 for count in counts)
        return mask if whole and sum(counts) == math.prod(size) else None
    return mask if isinstance(counts, str) else None


VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip
_LISTED = "ImageSets/Main"  # the folder of the lists
_TRUTH = {1: 1, -1: 0, 0: -1}  # VOC's present, absent, difficult → ours


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
    state = hashlib.blake2b(digest_size=16)
    file = folder / _LISTED / f"{split}.txt"
    listed = read_text(file)
    state.update(listed.encode())
    numbers = [inside_folder(file, line.split()[0]) for line in listed.splitlines() if line.strip()]
    if twice := _twice(numbers):
        raise UserError(f"{file} lists {twice} more than once")
    images, found = [], dict[str, int]()
    for number in numbers:
        path = named(folder / "Annotations" / f"{number}.xml")
        if not os.path.exists(path):  # Path.exists raises of a name that is too long
            raise UserError(f"no {path}, though {split}.txt lists {number}.")
        content = read_bytes(path)
        state.update(content)
        images.append(_read_image(path, f"{number}.jpg", content, found))
    classes = _classes(folder, found)
    number_C = np.array([classes.index(of) for of in found], np.int64)
    images = [
        replace(image, objects=replace(image.objects, labels_N=number_C[image.objects.labels_N]))
        for image in images
    ]
    truth = _truth(folder, split, numbers, classes)
    for label_M in truth.values():
        state.update(label_M.tobytes())
    if classes != VOC_CLASSES:
        state.update("\n".join(classes).encode())
    place = folder / "JPEGImages"
    images = _found(name, place, images)
    source = Annotated(name, place, images, classes, state.hexdigest())
    for label, label_M in truth.items():
        source.multilabels[TASK][:, label] = label_M
    return source


def _classes(folder: Path, found: Mapping[str, int]) -> tuple[str, ...]:
    """VOC's classes, or those of all annotations of a folder with others, so that splits agree."""
    if set(VOC_CLASSES) == found.keys():
        return VOC_CLASSES
    names = set(found)
    for path in (folder / "Annotations").glob("*.xml"):
        with suppress(ElementTree.ParseError, UserError, OSError):  # of another split
            elements = ElementTree.fromstring(read_bytes(path)).iterfind("object/name")
            names |= {spelling((element.text or "").strip()) for element in elements}
    if names <= set(VOC_CLASSES):
        return VOC_CLASSES
    own = sorted(names - set(VOC_CLASSES))
    _log.warning("%s has classes of its own: %d, the first is %s", folder, len(own), own[0])
    return tuple(sorted(names))


def _read_image(path: Path, file: str, content: bytes, found: dict[str, int]) -> AnnotatedImage:
    """What one XML file says of an image file; its classes are numbered as they are found."""
    try:
        root = ElementTree.fromstring(content)
        elements = root.findall("object")
        boxes = [
            [_number(item, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
            for item in elements
        ]
        names = [spelling(_text(item, "name").strip()) for item in elements]
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
        path = named(folder / _LISTED / f"{name}_{split}.txt")
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
