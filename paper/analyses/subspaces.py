"""A map of the images in each subspace, and whether neighbors share labels.

N images, D dimensions, K operators with a mask, A arrangements
(the K subspaces and the whole embedding), T tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.analyses import figure
from mast.analyses.analysis import (
    Arrays,
    Details,
    Grid,
    Subject,
    files_of,
    lacking_images,
)
from mast.core.compute import one_thread
from mast.evaluation.agreement import chance, retrieve
from paper.analyses.base import PaperAnalysis, class_colors, entry, legend

NEIGHBOURS = 10
FEWEST = 5  # images that a map needs
COLLAPSED = 1e-9  # deviation of all coordinates of directions, below which all images are one point


@final
class SubspacesAnalysis(PaperAnalysis):
    """t-SNE of the masked embeddings, and how often an image's neighbours share its class.

    Distances are those of directions (cosine); agreement is taken in the D dimensions, not in the
    plane.

    Arrays:
        subspaces: (A,) names of the masks, the last "whole embedding"; that one alone where a
            method has no masks.
        points: (A, N, 2) places in the plane, each coordinate from 0 to 1.
        names: (N,) of the images.
        tasks: (T,) names of what the images are labelled with.
        labels: (T, N) class indices.
        classes_<task>: names of the classes.
        agreement: (T, A) percent of the 10 nearest images, or all others where there are fewer,
            that share an image's class; not those of its own file.
        expected: (T,) that percentage for neighbours drawn at random.

    Reference:
        MAST, Figure 3b; van der Maaten and Hinton, "Visualizing Data using t-SNE" (2008).
    """

    def lacking(self, subject: Subject) -> str | None:
        return lacking_images(subject, FEWEST)

    def compute(self, subject: Subject) -> Arrays:
        assert subject.embed is not None
        assert subject.images is not None
        images, whole_ND = subject.images, subject.embed(None)
        masked = [whole_ND]
        if subject.mask_DK is not None:
            mask_DK = subject.mask_DK.detach().cpu()
            masked = [whole_ND * mask_D for mask_D in mask_DK.unbind(dim=1)] + masked
        unit = [F.normalize(embedding_ND.double(), dim=1) for embedding_ND in masked]
        tasks = list(images.labels)
        label_TN = torch.tensor(np.array(list(images.labels.values())), dtype=torch.long)
        files_N = files_of(images)
        same = [
            retrieve(unit_ND, unit_ND, label_TN, NEIGHBOURS, files_N).mean(dim=1)
            for unit_ND in unit
            if tasks
        ]
        return {
            "subspaces": np.array([*subject.operators, "whole embedding"]),
            "points": np.stack(_planes(unit)),
            "names": np.array(images.names),
            "tasks": np.array(tasks, str),
            "labels": label_TN.numpy().reshape(len(tasks), len(whole_ND)),
            **{f"classes_{task}": np.array(images.classes[task]) for task in tasks},
            "agreement": 100 * np.array(same).reshape(len(unit), len(tasks)).T,
            "expected": np.array(
                [100 * float(chance(label_N, files_N).mean()) for label_N in label_TN]
            ),
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """A map a subspace, colored by the task that the embedding knows."""
        drawn, axes = figure.panels(len(arrays["subspaces"]), 3, 2.6)
        best = _best_task(arrays)
        label_N = arrays["labels"][best] if best is not None else None
        classes = arrays[f"classes_{arrays['tasks'][best]}"] if best is not None else ["image"]
        colors = class_colors([str(name) for name in classes])
        for axis, name, point_N2 in zip(axes, arrays["subspaces"], arrays["points"], strict=True):
            for at, title in enumerate(classes):
                members = slice(None) if label_N is None else label_N == at
                axis.scatter(
                    *point_N2[members].T, s=9, alpha=0.8, label=entry(title),
                    facecolor=colors.fills[at], edgecolor=colors.outline or "none",
                    linewidth=0.5 if colors.outline else 0,
                )  # fmt: skip
            axis.set_title(figure.words(name))
            figure.plate(axis)
        if label_N is not None and len(classes) <= 24:
            legend(drawn, axes[:1], ncols=min(8, len(classes)), scale=2.5)
        return drawn

    def caption(self, arrays: Arrays) -> str:
        count = arrays["points"].shape[1]
        nearest = min(NEIGHBOURS, count - 1)
        best = _best_task(arrays)
        if best is None:
            return (
                f"t-SNE of {count} images. Without labels, whether neighbours are alike is not "
                "measured."
            )
        parts = []
        for task, agreement_A, expected in zip(
            arrays["tasks"], arrays["agreement"], arrays["expected"], strict=True
        ):
            whole, by_chance = agreement_A[-1], f"by chance {expected:.0f}"
            if len(agreement_A) == 1:
                parts.append(f"{task} {whole:.0f} % ({by_chance})")
            elif np.ptp(agreement_A[:-1]) == 0:
                parts.append(
                    f"{task} {agreement_A[0]:.0f} % in every subspace (whole {whole:.0f}, "
                    f"{by_chance})"
                )
            else:
                most, least = (
                    f"{agreement_A[at]:.0f} % in {figure.words(arrays['subspaces'][at])}"
                    for at in (agreement_A[:-1].argmax(), agreement_A[:-1].argmin())
                )
                parts.append(f"{task} {most} and {least} (whole {whole:.0f}, {by_chance})")
        return (
            f"Neighbours most often share their {arrays['tasks'][best]}: "
            f"{arrays['agreement'][best, -1]:.0f} % of an image's {nearest} nearest in the whole "
            f"embedding ({arrays['expected'][best]:.0f} by chance). t-SNE of {count} images, "
            f"colored by {arrays['tasks'][best]}. Share of the {nearest} nearest images with an "
            f"image's class: {'; '.join(parts)}."
        )

    def details(self, arrays: Arrays) -> Details:
        """The agreement of neighbours."""
        rows = tuple(
            (str(task), *agreement_A, expected)
            for task, agreement_A, expected in zip(
                arrays["tasks"],
                arrays["agreement"].tolist(),
                arrays["expected"].tolist(),
                strict=True,
            )
        )
        subspaces = map(figure.words, arrays["subspaces"])
        columns = ("neighbours of the same class (%)", *subspaces, "by chance")
        return Details(Grid(columns, rows) if rows else None)


def _planes(unit: Sequence[Tensor]) -> list[np.ndarray]:
    """A map of each arrangement; operators that share a mask share their map."""
    maps: list[np.ndarray] = []
    for at, unit_ND in enumerate(unit):
        same = [other for other in range(at) if torch.equal(unit[other], unit_ND)]
        maps.append(maps[same[0]] if same else _plane(unit_ND))
    return maps


def _plane(unit_ND: Tensor) -> np.ndarray:
    from sklearn.manifold import TSNE

    if float(unit_ND.std(dim=0).max()) < COLLAPSED:
        return np.full((len(unit_ND), 2), 0.5, np.float32)
    perplexity = min(30.0, (len(unit_ND) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=0)
    with one_thread():
        place_N2 = tsne.fit_transform(unit_ND.numpy())
    low_2, high_2 = place_N2.min(axis=0), place_N2.max(axis=0)
    return np.asarray((place_N2 - low_2) / np.maximum(high_2 - low_2, 1e-12), np.float32)


def _best_task(arrays: Arrays) -> int | None:
    """The task whose classes the whole embedding tells apart best, against chance."""
    if len(arrays["tasks"]) == 0:
        return None
    gain_T = (arrays["agreement"][:, -1] - arrays["expected"]) / (100 - arrays["expected"] + 1e-9)
    return int(gain_T.argmax())
