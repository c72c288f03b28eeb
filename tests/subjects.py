"""Runs as the analyses see them, whose answers are known by hand."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mast.analyses import Analysis, ChangeBy, Images, Subject
from paper.analyses.predicted_operators import Pairs
from paper.analyses.scores import Score

NAMES = ("rotate", "shear_x", "invert")


def whole(operators: tuple[str, ...] = NAMES, masks: Tensor | None = None) -> Subject:
    """A run that has everything, of ten images of two classes, of which it knows the first.

    Its embedding is turned by as many radians as the magnitude of `rotate`, and its uncertainty,
    0 to 9, grows by that magnitude.
    """

    def strength(change: ChangeBy | None) -> float:
        return 0.0 if change is None or change[0] != "rotate" else float(change[1] or 0)

    def embed(change: ChangeBy | None) -> Tensor:
        one = torch.tensor([[math.cos(strength(change)), math.sin(strength(change))]])
        return torch.cat([(1 + at) * one for at in range(10)])

    labels_N = np.arange(10) % 2
    images = Images(
        names=tuple(f"{at}.png" for at in range(10)),
        thumbnails_NPP3=np.zeros((10, 4, 4, 3), np.uint8),
        labels={"class": labels_N},
        classes={"class": ("even", "odd")},
    )
    log = [
        {"step": 1, "epoch": 0.5, "loss": 4.0, "lr": 0.1, "stat/mask_active_share": 0.9},
        {"step": 2, "epoch": 1.0, "loss": math.nan, "lr": 0.1},
        {"step": 2, "epoch": 1, "online/knn": 30.0, "online/effective_rank": 12.0},
        {"step": 3, "warning": "variance collapse: …"},
        {"step": 4, "epoch": 2.0, "loss": 2.0, "lr": 0.0},
    ]
    return Subject(
        "run",
        trained_with=operators,
        operators=operators,
        mask_DK=torch.ones(2, len(operators)) if masks is None else masks,
        epochs=2,
        stages=(("operators begin to compose", 1.0),),
        log=log,
        images=images,
        embed=embed,
        extras={
            "pairs": lambda: drawn_pairs(10, operators),
            "uncertainty": lambda change: torch.arange(10.0) + strength(change),
            "hits": {"class": 1.0 - labels_N},
            "scores": tuple(scores(operators)),
        },
    )


def drawn_pairs(images: int, operators: tuple[str, ...]) -> Pairs:
    """Two pairs per image: the first dimension shows by how much it was turned, the other nothing.

    Its first view is at 0 there. What the second operator did does not show for half of the images;
    the last one did nothing.
    """
    draw = torch.Generator().manual_seed(0)
    image_P = np.tile(np.arange(images), 2)
    drawn_P, noise_P = torch.randn(2, len(image_P), generator=draw)
    second_PD = torch.stack([drawn_P, noise_P], dim=1)
    differences = [drawn_P.double().numpy()[:, None]] * len(operators)
    if len(operators) > 1:
        unknown = np.where(image_P % 4 < 2, np.nan, 1.0)[:, None]
        differences[1:] = [unknown * differences[0], 0 * differences[0]][: len(operators) - 1]
    return Pairs(
        image_P,
        (torch.zeros(len(image_P), 1), noise_P[:, None]),
        (torch.zeros_like(second_PD), second_PD),
        dict(zip(operators, differences, strict=True)),
    )


def scores(operators: tuple[str, ...]) -> Iterator[Score]:
    """Of two tasks: one that needs the first operator's subject, and one that is not known."""
    for target, top1 in (("shape", 80.0), ("color", 34.0)):
        for protocol in ("embedding", "retained"):
            yield Score(protocol, "set", target, "top1", top1, top1 - 5, top1 + 5)
        yield Score("retained", "set", target, "chance", 33.0)
        for at, name in enumerate(operators):
            change = -1.0 if at else -20.0
            for protocol, measure, value in (
                ("embedding", f"prediction_{name}", 50.0 + 10 * at),
                ("embedding", f"advantage_{name}", 10.0 * (at - 1)),
                ("retained", f"change_{name}", change),
            ):
                yield Score(protocol, "set", target, measure, value, value - 3, value + 3)


def conforms(analysis: Analysis, subject: Subject, folder: Path) -> None:
    """An analysis says what to see, and draws the same figure of what is kept on disk."""
    assert analysis.lacking(subject) is None
    arrays = analysis.compute(subject)
    assert analysis.caption(arrays).endswith(".")
    for key in arrays:
        assert arrays[key].dtype != object
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    with np.load(folder / "arrays.npz") as kept:
        figure = analysis.draw(dict(kept))
        details = analysis.details(dict(kept))
    if details.grid is not None:
        assert {len(row) for row in details.grid.rows} == {len(details.grid.columns)}
    assert figure.axes
