"""Images with annotated objects: a box, a class and perhaps a mask each.

Boxes are (x1, y1, x2, y2) in pixels of the upright original, from 0 at the left and top edge to its
width and height at the right and bottom edge. Masks stay as the annotation file has them: whoever
needs pixels rasterises them.

Legend: N objects of one image, M images, C categories.
"""

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from mast.core.errors import UserError
from mast.data.decode import Opened, open_image, upright_size
from mast.data.source import SetDescription, Source, refuse_split, split_names

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
        """Some of the objects.

        Args:
            keep_N: (N,) bool.
        """
        return Objects(
            self.boxes_N4[keep_N],
            self.labels_N[keep_N],
            tuple(mask for mask, keep in zip(self.masks, keep_N, strict=True) if keep),
            self.crowd_N[keep_N],
            self.difficult_N[keep_N],
            self.area_N[keep_N],
        )


@dataclass(frozen=True)
class AnnotatedImage:
    """One image as an annotation file describes it.

    Attributes:
        file: Its path below the folder of images.
        height: Of the upright image, in pixels.
        width: Of the upright image, in pixels.
        objects: What it shows; boxes may still reach outside, areas may be NaN for "the box's".
    """

    file: str
    height: int
    width: int
    objects: Objects


@final
class Annotated(Source):
    """Images with annotated objects, read by `mast.data.coco` or `mast.data.voc`.

    Boxes are clipped to their image; those that then have no area are dropped, counted and logged.
    There are no `targets`; which categories an image shows is the task "objects" of `multilabels`:
    1 for one it shows, 0 for one it does not, -1 for one of which all objects are difficult.

    Args:
        name: What the user called it.
        folder: The folder of images.
        images: What the annotations say of every image.
        categories: Names of the categories by the number that the annotations use.
        state: A hash of the annotations, for the fingerprint.

    Attributes:
        categories: Their names.
        category_ids: Their numbers in the annotation file, in the same order.
        images: What is known of every image.
        state: As given.

    Raises:
        UserError: If an image is not in the folder, or nothing is annotated.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        images: Sequence[AnnotatedImage],
        categories: Mapping[int, str],
        state: str,
    ) -> None:
        self.name = name
        self.folder = folder
        self.categories = tuple(categories.values())
        self.category_ids = tuple(categories)
        self._files = _files(name, folder, [image.file for image in images])
        self.state = state
        self.images = _inside(name, images)
        if not any(len(image.objects) for image in self.images):
            raise UserError(
                f"none of the {len(images)} images of {name} has an annotated object; expected "
                "annotations with boxes."
            )
        self.targets = {}
        self.classes = {TASK: self.categories}
        self.multilabels = {TASK: _presence(self.images, len(self.categories))}

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
        """A hash of the annotations and of every image's path, size and time of modification."""
        digest = hashlib.blake2b(self.state.encode(), digest_size=16)
        for image, (size, modified) in zip(self.images, self._files, strict=True):
            digest.update(f"{image.file}\0{size}\0{modified}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def path(self, index: int) -> Path:
        """The file of one image."""
        return self.folder / self.images[index].file

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of one upright image in pixels, as annotated."""
        return self.images[index].height, self.images[index].width

    def objects(self, index: int) -> Objects:
        """What is annotated in one image; perhaps nothing."""
        return self.images[index].objects


def joined(name: str, parts: Sequence[Annotated]) -> Annotated:
    """Several sets as one, the images of one after those of another.

    Args:
        name: What the user called it.
        parts: Sets with the same categories.

    Raises:
        UserError: Their categories differ.
    """
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
    categories = dict(zip(first.category_ids, first.categories, strict=True))
    union = Annotated(name, folder, images, categories, " ".join(part.state for part in parts))
    union.multilabels = {
        TASK: np.concatenate([part.multilabels[TASK] for part in parts]),
    }
    return union


def with_objects(source: Source) -> Annotated:
    """The source, if objects are annotated in its images.

    Raises:
        UserError: They are not.
    """
    if isinstance(source, Annotated):
        return source
    raise UserError(
        f"{source.name} has no annotated objects, which detection, segmentation and the joining of "
        "sets by + need: expected coco:FOLDER, coco:FILE.json@FOLDER or voc:FOLDER."
    )


def object_parts(name: str, splits: Mapping[str, str | None]) -> SetDescription:
    """The parts of a set with annotated objects.

    Args:
        name: Of the whole set.
        splits: What the set calls its split, by part; None where it has none.

    Raises:
        UserError: There is none, or a single split is named.
    """
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

    Raises:
        UserError: It is absolute, or leaves the folder of images by "..".
    """
    path = Path(entry)
    if path.anchor or ".." in path.parts:
        raise UserError(
            f"{annotations} names the image {entry!r}, which leads out of the folder of images: "
            "write its path below that folder."
        )
    return entry


def pixels(annotated: Any) -> int:
    """A height or a width as a file of annotations has it.

    Raises:
        ValueError: No image has so many pixels.
    """
    side = int(annotated)
    if not 1 <= side < 2**31:
        raise ValueError(f"an image has a side of {annotated!r:.40} pixels")
    return side


def _files(name: str, folder: Path, files: Sequence[str]) -> list[tuple[int, int]]:
    """Size in bytes and time of modification of every image."""
    states, missing = [], []
    for file in files:
        try:
            status = (folder / file).stat()
        except (OSError, ValueError):  # no such file, or no name of one
            missing.append(file)
        else:
            states.append((status.st_size, status.st_mtime_ns))
    if missing:
        raise UserError(
            f"{len(missing)} of the {len(files)} images that {name} annotates are not in {folder}, "
            f"the first is {missing[0]}. Put them there, or name the folder that holds them."
        )
    return states


def _inside(name: str, images: Sequence[AnnotatedImage]) -> list[AnnotatedImage]:
    """The images with boxes clipped to them; what then has no area is dropped with a warning."""
    inside, dropped = [], []
    for image in images:
        objects = image.objects
        boxes_N4 = objects.boxes_N4.astype(np.float32)
        limit_4 = np.array([image.width, image.height] * 2, np.float32)
        boxes_N4 = np.clip(boxes_N4, 0, limit_4)
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


def _presence(images: Sequence[AnnotatedImage], categories: int) -> np.ndarray:
    """Labels (M, C) int8: 1 where a category is seen, -1 where only with difficulty."""
    label_MC = np.zeros((len(images), categories), np.int8)
    for label_C, image in zip(label_MC, images, strict=True):
        objects = image.objects
        label_C[objects.labels_N[objects.difficult_N]] = -1
        label_C[objects.labels_N[~objects.difficult_N]] = 1
    return label_MC
