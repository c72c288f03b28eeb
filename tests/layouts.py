"""Tiny sets on disk in the layouts that annotations come in."""

import json
from pathlib import Path
from typing import Any

from PIL import Image

SQUARE = [[2, 1, 6, 1, 6, 4, 2, 4]]  # a polygon of 4 × 3 pixels


def picture(path: Path, size: tuple[int, int] = (8, 6), shade: int = 0, **options: Any) -> Path:
    """One image of a single color, width × height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade % 256, 90, 160)).save(path, **options)
    return path


def box(image: int, category: int, bbox: list[float], **more: Any) -> dict[str, Any]:
    """One annotation of COCO; the box is x, y, width, height."""
    return {"image_id": image, "category_id": category, "bbox": bbox, "iscrowd": 0, **more}


def coco_document(**changes: Any) -> dict[str, Any]:
    """Three images of 8 × 6 pixels; categories 3 cat, 7 dog and 9 owl, of which none is seen."""
    return {
        "images": [
            {"id": number, "file_name": f"{number}.png", "width": 8, "height": 6}
            for number in (30, 10, 20)
        ],
        "categories": [
            {"id": number, "name": name} for number, name in ((7, "dog"), (3, "cat"), (9, "owl"))
        ],
        "annotations": [
            box(10, 7, [2, 1, 4, 3], segmentation=SQUARE, area=12),
            box(10, 3, [0, 0, 8, 6], segmentation={"counts": [0, 48], "size": [6, 8]}, iscrowd=1),
            box(30, 3, [5, 2, 9, 1.5]),
        ],
        **changes,
    }


def write_coco(root: Path, folder: str = "train2017", **changes: Any) -> Path:
    """The document of `coco_document` as the split train2017, with its images."""
    (root / "annotations").mkdir(parents=True)
    file = root / "annotations" / "instances_train2017.json"
    file.write_text(json.dumps(coco_document(**changes)))
    for number in (10, 20, 30):
        picture(root / folder / f"{number}.png", shade=number)
    return root


def voc_object(name: str, corners: tuple[float, ...], difficult: int = 0) -> str:
    """One object of VOC's XML, with a part that is none."""
    sides = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
    bounds = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    return (
        f"<object><name>{name}</name><difficult>{difficult}</difficult>"
        f"<bndbox>{bounds}</bndbox>{part}</object>"
    )


def write_voc(root: Path, split: str = "trainval", **objects: str) -> Path:
    """Images of 8 × 6 pixels with the objects given by image, as one split."""
    size = "<size><width>8</width><height>6</height><depth>3</depth></size>"
    lists = root / "ImageSets" / "Main"
    for folder in (lists, root / "Annotations"):
        folder.mkdir(parents=True, exist_ok=True)
    (lists / f"{split}.txt").write_text("".join(f"{image}\n" for image in objects))
    for image, inside in objects.items():
        text = f"<annotation>{size}{inside}</annotation>"
        (root / "Annotations" / f"{image}.xml").write_text(text)
        picture(root / "JPEGImages" / f"{image}.jpg")
    return root
