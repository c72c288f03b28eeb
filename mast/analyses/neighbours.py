"""What an image finds when some invariances are chosen, and what others find.

N images, P side of a thumbnail in pixels, Q queries that are shown, S spaces, J neighbours that
are shown, T tasks, D dimensions of the embedding.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from mast.analyses import figure
from mast.analyses.analysis import (
    Analysis,
    Arrays,
    Details,
    Gallery,
    Grid,
    Subject,
    files_of,
    lacking_images,
    mean_and_margin,
)
from mast.evaluation.agreement import chance, retrieve
from mast.models.selection import exempt_blocks
from mast.search.nearest import directions

QUERIES, SHOWN, COUNTED = 4, 6, 10  # of the queries, the figure has the first
WHOLE = "whole embedding"
FEWEST = 3  # images, so that there is a choice


class WeightedSpace(NamedTuple):
    """Dimensions of the embedding.

    Attributes:
        name: For people.
        weight_D: How much each dimension counts, in [0, 1], on the CPU.
        exempt_from: The operators to which it need not be invariant; none but for a block.
    """

    name: str
    weight_D: Tensor
    exempt_from: tuple[str, ...] = ()


def spaces_of(subject: Subject, dim: int) -> list[WeightedSpace]:
    """The whole embedding of `dim` dimensions; for each distinct mask its complement, its block."""
    spaces = [WeightedSpace(WHOLE, torch.ones(dim))]
    if subject.mask_DK is None:
        return spaces
    blocks = exempt_blocks(subject.mask_DK.detach().cpu().float(), subject.operators)
    for names, exempt_D in blocks.items():
        operators = tuple(names.split("+"))
        of_them = " and ".join(map(figure.words, operators))
        spaces.append(WeightedSpace(f"ignoring {of_them}", 1 - exempt_D))
        spaces.append(WeightedSpace(f"matching {of_them}", exempt_D, operators))
    return spaces


@final
class Neighbours(Analysis):
    """The nearest images of a query by the dimensions that are chosen, and what they share with it.

    For every distinct mask there are two spaces: the dimensions that are invariant to its operators
    ("ignoring …") and those that are exempt from them ("matching …"). Beside them are the whole
    embedding and those of other runs. A run without such masks has its whole embedding alone.

    Arrays:
        pictures: (N, P, P, 3) thumbnails, uint8.
        queries: (Q,) positions of the queries that are shown, evenly spaced.
        spaces: (S,) names.
        nearest: (Q, S, J) positions of the nearest images, nearest first.
        tasks: (T,) names of what the images are labelled with.
        labels: (T, N) names of the images' classes.
        shared: (S, T) percent of the ten nearest images, or of all others where there are fewer,
            that share a query's label, the mean over images.
        gain_margin: (S, T) half of the 95 % interval over images of its difference from the space
            before.
        expected: (T,) that percentage in a random order.

    Reference:
        Ours; the search that subspaces of one embedding make possible.
    """

    def lacking(self, subject: Subject) -> str | None:
        return lacking_images(subject, FEWEST)

    def compute(self, subject: Subject) -> Arrays:
        assert subject.embed is not None
        assert subject.images is not None
        images, whole_ND = subject.images, subject.embed(None).float()
        spaces = {
            f"embedding of {other.name}": other.embed(None).float()
            for other in subject.beside
            if other.embed is not None
        }
        for space in spaces_of(subject, whole_ND.shape[1]):
            spaces[space.name] = whole_ND * space.weight_D
        count = min(QUERIES, len(images.names))
        query_Q = np.arange(count) * len(images.names) // count
        tasks = [task for task, label_N in images.labels.items() if len(set(label_N.tolist())) > 1]
        label_TN = torch.tensor(np.array([images.labels[task] for task in tasks]), dtype=torch.long)
        files_N = files_of(images)
        shared_SNT = np.zeros((len(spaces), len(images.names), 0))
        if tasks:
            found = [
                retrieve(of_ND, of_ND, label_TN, COUNTED, files_N) for of_ND in spaces.values()
            ]
            shared_SNT = np.stack([100 * of.cpu().numpy().T for of in found])
        gain_SNT = np.diff(shared_SNT, axis=0, prepend=shared_SNT[:1])
        nearest = [_nearest(space_ND, query_Q, files_N) for space_ND in spaces.values()]
        names = [np.array(images.classes[task])[images.labels[task]] for task in tasks]
        return {
            "pictures": images.thumbnails_NPP3,
            "queries": query_Q,
            "spaces": np.array(list(spaces)),
            "nearest": np.stack(nearest, axis=1),
            "tasks": np.array(tasks, str),
            "labels": np.array(names, str).reshape(len(tasks), len(images.names)),
            "shared": shared_SNT.mean(axis=1),
            "gain_margin": mean_and_margin(gain_SNT.swapaxes(0, 1))[1],
            "expected": np.array(
                [100 * float(chance(label_N, files_N).mean()) for label_N in label_TN]
            ),
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """One row a space, the query first."""
        spaces, query = arrays["spaces"], arrays["queries"][0]
        columns = 1 + arrays["nearest"].shape[2]
        drawn, axes = figure.panels(len(spaces) * columns, columns, 1.25)
        for row, space in enumerate(spaces):
            shown = [query, *arrays["nearest"][0, row]]
            for column, at in enumerate(shown):
                axis = axes[row * columns + column]
                axis.imshow(arrays["pictures"][at], interpolation="nearest")
                figure.plate(axis)
            axes[row * columns].set_ylabel("query", fontsize=7)
            axes[row * columns + 1].set_title(str(space), fontsize=8)
        return drawn

    def caption(self, arrays: Arrays) -> str:
        shown = (
            f"Each row: a query and its {arrays['nearest'].shape[2]} nearest of "
            f"{len(arrays['pictures'])} images."
        )
        spaces, tasks, shared_ST = (arrays[key] for key in ("spaces", "tasks", "shared"))
        if len(tasks) == 0:
            return f"{shown} Without labels, what neighbors share is not measured."
        # What a choice moves most: the block against its complement, which stands before it.
        gain = {
            (at, task): shared_ST[at, task] - shared_ST[at - 1, task]
            for at, name in enumerate(spaces)
            if name.startswith("matching ")
            for task in range(len(tasks))
        }
        if not gain:
            return (
                f"{_shared(arrays)} There is no invariance to choose: no dimension is exempt. "
                f"{shown}"
            )
        at, task = max(gain, key=lambda key: abs(gain[key]))
        sure = "is" if abs(gain[at, task]) > arrays["gain_margin"][at, task] else "is not"
        counted = min(COUNTED, len(arrays["pictures"]) - 1)
        return (
            f"{figure.capital(str(spaces[at]))}, {shared_ST[at, task]:.0f} % of the {counted} "
            f"nearest images share a query's {tasks[task]}; {spaces[at - 1]}, "
            f"{shared_ST[at - 1, task]:.0f} % (by chance {arrays['expected'][task]:.0f}); the "
            f"difference {sure} beyond its 95 % interval. {shown}"
        )

    def details(self, arrays: Arrays) -> Details:
        """Every query and its neighbors in the whole embedding; what neighbors share in each."""
        tasks = [str(task) for task in arrays["tasks"]]
        whole = arrays["spaces"].tolist().index(WHOLE)
        at_QJ = np.column_stack([arrays["queries"], arrays["nearest"][:, whole]])
        columns = at_QJ.shape[1]
        captions = ["query", *(f"nearest {rank}" for rank in range(1, columns))] * len(at_QJ)
        if tasks:
            captions = arrays["labels"][0, at_QJ.ravel()].tolist()
            captions[::columns] = [f"query: {label}" for label in captions[::columns]]
        title = f"Each row: an image, and the {columns - 1} nearest of {len(arrays['pictures'])}."
        pictures_NPP3 = arrays["pictures"][at_QJ.ravel()]
        title = f"{title} {_shared(arrays)}".rstrip()
        galleries = (Gallery(title, pictures_NPP3, tuple(captions), columns),)
        if not tasks:
            return Details(galleries=galleries)
        rows = tuple(
            (str(space), *shared_T)
            for space, shared_T in zip(arrays["spaces"], arrays["shared"].tolist(), strict=True)
        )
        heads = ("of the nearest, share of the same (%)", *tasks)
        return Details(Grid(heads, (("by chance", *arrays["expected"].tolist()), *rows)), galleries)


def _shared(arrays: Arrays) -> str:
    """How often neighbors in the whole embedding share a query's label; empty without labels."""
    whole = arrays["spaces"].tolist().index(WHOLE)
    parts = [
        f"{task} {shared:.0f} % (by chance {expected:.0f})"
        for task, shared, expected in zip(
            arrays["tasks"], arrays["shared"][whole], arrays["expected"], strict=True
        )
    ]
    count = min(COUNTED, len(arrays["pictures"]) - 1)
    text = f"The {count} nearest images in the {WHOLE} share a query's {', '.join(parts)}."
    return text if parts else ""


def _nearest(space_ND: Tensor, query_Q: np.ndarray, files_N: Tensor | None) -> np.ndarray:
    """Positions of the nearest images of other files of some, (Q, J)."""
    unit_ND = directions(space_ND)
    cosine_QN = unit_ND[query_Q] @ unit_ND.T
    file_N = torch.arange(len(space_ND)) if files_N is None else files_N
    cosine_QN[file_N[query_Q, None] == file_N] = -torch.inf
    others = len(space_ND) - int(file_N.bincount().max())
    return cosine_QN.topk(min(SHOWN, others), dim=1).indices.numpy()
