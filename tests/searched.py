"""Features whose displacements by operators are known, and a page on which they are searched."""

from dataclasses import replace
from pathlib import Path

import torch
from pages import NASTY
from tiny_evaluation import tiny_set
from torch import Tensor

from mast.invariance.subspaces import Subspaces
from mast.page import GalleryRow, Item, Searched, View, write_gallery
from mast.search.reduced import reduced

WIDTHS = (24, 40)
OPERATORS = ("color_jitter", "grayscale", "rotate", "gaussian_blur")


def searched(count: int) -> tuple[Tensor, Subspaces]:
    """Features (N, F), and operators of three properties that move some of their axes."""
    draw = torch.Generator().manual_seed(0)
    features_NF = torch.randn(count, 64, generator=draw) * torch.tensor([5.0, 3.0, *[0.7] * 62])
    few_NF, changed = features_NF[:120], {}
    for at, name in enumerate(OPERATORS):
        mix_FF = torch.randn(12, 64, generator=draw)
        changed[name] = few_NF + (few_NF[:, at * 12 : at * 12 + 12] ** 2 - 1) @ mix_FF / 8
    return features_NF, Subspaces.of(few_NF, changed, WIDTHS)


def searched_page(file: Path, count: int) -> tuple[Tensor, Subspaces]:
    """Write a page of photos with copies, outliers and labels, whose first name is nasty."""
    canvases = tiny_set(-(-count // 3)).part(range(count))
    names = [NASTY, *canvases.identifiers[1:]]
    classes = {**canvases.classes, "class": (NASTY, "red", "blue")}
    canvases = replace(canvases, identifiers=names, classes=classes)
    features_NF, subspaces = searched(count)
    group = [
        Item(canvases, 2, "first", True, True),
        Item(canvases, 5, "near: blurred", kept=False, pair=(names[2], names[5])),
        Item(canvases, 7, "exact", kept=False),
    ]
    far = [Item(canvases, at, "distance 0.9") for at in (9, 11)]
    views = [
        View("Copies", "1 group of copies.", [GalleryRow("Group 1", group)]),
        View("Outliers", "The farthest first.", [GalleryRow("", far)]),
    ]
    space = reduced(features_NF, subspaces)
    write_gallery(file, NASTY, views, Searched(canvases, space), "A lead.")
    return features_NF, subspaces
