"""Sets annotated as COCO is: one JSON file of images, categories and objects.

coco:FOLDER@SPLIT is FOLDER/annotations/instances_SPLIT.json, with its images in the first of
FOLDER/SPLIT, FOLDER/images/SPLIT and FOLDER that is there; coco:FILE.json@FOLDER is any other file,
with its images in FOLDER.
"""

import hashlib
import itertools
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mast.core.errors import UserError, unknown
from mast.core.files import named, parse_json, read_bytes
from mast.data.annotated import (
    Annotated,
    AnnotatedImage,
    Objects,
    Segmentation,
    inside_folder,
    object_parts,
    pixels,
)
from mast.data.labels import told_apart
from mast.data.source import SetDescription

_LISTS = ("images", "annotations", "categories")
_NUMBERS, _FAR = frozenset((int, float)), 1e12
_LEAST = 6  # numbers of a polygon: three points; one of fewer covers nothing
_log = logging.getLogger("mast")
_BEFORE, _AFTER = "instances_", ".json"


def open_coco(spec: str, _root: Path, _download: bool) -> Annotated:
    """Opens a set by its name.

    Args:
        spec: As in this module's summary.

    Raises:
        UserError: If there is no such file or split, or the annotations do not fit the images.
    """
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
    return read_coco(spec, _annotations(place) / f"{_BEFORE}{after}{_AFTER}", folder)


def describe_coco(spec: str) -> SetDescription:
    """The newest splits of coco:FOLDER.

    COCO itself is scored on its val, as the labels of its test are kept back; sets like it may have
    both.
    """
    splits = coco_splits(named(spec.removeprefix("coco:")))
    train, val, test = (_newest(splits, prefix) for prefix in ("train", "val(?:id)?", "test"))
    return object_parts(spec, {"train": train, "val": val if test else None, "test": test or val})


def coco_splits(folder: Path) -> list[str]:
    """The splits whose instances are annotated in a folder laid out as COCO; perhaps none."""
    files = sorted(_annotations(folder).glob(f"{_BEFORE}*{_AFTER}"))
    return [file.name.removeprefix(_BEFORE).removesuffix(_AFTER) for file in files]


def read_coco(name: str, annotations: Path, images: Path) -> Annotated:
    """Reads an annotation file.

    Images come in the order of their number in the file, categories too.

    Args:
        name: What the user called the set.
        annotations: The JSON file.
        images: The folder that its file names are relative to.

    Raises:
        UserError: If the file is not as COCO has it, does not fit the images, or names one outside
            their folder.
    """
    document, state = _read(annotations)
    try:
        numbered = {row["id"]: str(row["name"]) for row in _by_id(document["categories"])}
        names = told_apart(list(numbered.values()), list(numbered))
        categories = dict(zip(numbered, names, strict=True))
        rows = _by_id(document["images"])
        of_image: dict[Any, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
        for kind, numbers in (("image", of_image), ("category", categories)):
            _refuse_unknown(annotations, kind, numbers, document["annotations"])
        for row in document["annotations"]:
            of_image[row["image_id"]].append(row)
        numbers = Counter(row.get("id") for row in document["annotations"])
        numbers.pop(None, None)
        if numbers and (most := numbers.most_common(1)[0])[1] > 1:
            raise ValueError(f"two annotations have the id {most[0]}")
        files = Counter(os.path.normpath(_file_name(row)) for row in rows)
        if files and (most := files.most_common(1)[0])[1] > 1:
            raise ValueError(f"two images name the file {most[0]}")
        label = {number: position for position, number in enumerate(categories)}
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
    return Annotated(name, images, annotated, categories, state)


def _newest(splits: Sequence[str], prefix: str) -> str | None:
    """The split of that name, with the highest year if it has one: train2017, not train2014."""
    return max((name for name in splits if re.fullmatch(rf"{prefix}\d*", name)), default=None)


def _annotations(folder: Path) -> Path:
    return folder / "annotations"


def _read(path: Path) -> tuple[dict[str, Any], str]:
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


def _by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(rows, key=lambda row: row["id"])
    for first, second in itertools.pairwise(ordered):
        if first["id"] == second["id"]:
            raise ValueError(f"two entries have the id {first['id']}")
    return ordered


def _refuse_unknown(path: Path, kind: str, numbers: Any, rows: list[dict[str, Any]]) -> None:
    strays = [row[f"{kind}_id"] for row in rows if row[f"{kind}_id"] not in numbers]
    if strays:
        raise UserError(
            f"{len(strays)} of {len(rows)} annotations in {path} have a {kind}_id that is none of "
            f"its {len(numbers)} listed, the first is {strays[0]!r}. Is this the file of another "
            "set?"
        )


def _file_name(row: dict[str, Any]) -> str:
    if not isinstance(row["file_name"], str):
        raise ValueError(f"the image {row['id']!r} has the file_name {row['file_name']!r:.80}")
    return row["file_name"]


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
