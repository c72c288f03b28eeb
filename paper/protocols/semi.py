"""Semi-supervised classification: the encoder is fine-tuned on a few percent of the labels.

N images in the pool, F of them labelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import read_text, short_name
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, Task, tasks
from mast.evaluation.protocols.evaluator import Evaluator
from mast.evaluation.result import readable
from mast.evaluation.tuning import Recipe, tune


@final
@dataclass(frozen=True, kw_only=True)
class Semi(Evaluator[EvaluationData]):
    """Fine-tuning on 1 % and 10 % of the labelled images, as VICReg's code does it.

    The images are drawn by class and by `seed`, and their names are written to
    `evaluations/subsets/`, one file a share; a file of names can be given instead, such as SimCLR's
    `1percent.txt` of ImageNet. The validation set, where there is one, is part of the pool that is
    drawn from: nothing is tuned.

    Args:
        shares: Of the pool, in (0, 1].
        encoder_lrs: Peak rates of the encoder, one a share.
        head_lrs: Peak rates of the head, one a share.
        epochs: Passes over the labelled images.
        batch_size: Images of a step.
        weight_decay: Of weights.
        lists: Files with the names of the labelled images, one per line, instead of a draw, one a
            share; a name may leave out folders.

    Reference:
        Bardes et al., VICReg, ICLR 2022, appendix C; its `evaluate.py`. The lists: Chen et al.,
        SimCLR, ICML 2020, section 4.
    """

    limits: ClassVar = {
        "shares": "(0, 1]", "head_lrs": "(0, inf)", "epochs": "(0, inf)", "batch_size": "(1, inf)",
    }  # fmt: skip

    shares: tuple[float, ...] = (0.01, 0.1)
    encoder_lrs: tuple[float, ...] = (0.03, 0.01)
    head_lrs: tuple[float, ...] = (0.08, 0.1)
    epochs: int = 20
    batch_size: int = 256
    weight_decay: float = 0.0
    lists: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("encoder_lrs", "head_lrs", *(["lists"] if self.lists else [])):
            if len(values := getattr(self, name)) != len(self.shares):
                raise UserError(
                    f"semi has {len(self.shares)} shares and {len(values)} {name}; give as many"
                )
        if len({*self.shares}) < len(self.shares):
            raise UserError("two shares of semi are equal: give each once")

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`; a target a share, such as "class 1%"."""
        names = [name for canvas_set in data.pool for name in canvas_set.identifiers]
        for task in tasks(data, self.seed, tuned=False):
            for at, share in enumerate(self.shares):
                target = f"{task.target} {100 * share:g}%"
                if self.lists:
                    labelled_F = positions_listed(Path(self.lists[at]), names)
                else:
                    labelled_F = draw_share(task.pool_labels_N, share, self.seed)
                    self._write_names(encoder, data, target, [names[i] for i in labelled_F])
                _check_classes(task, labelled_F, target)
                recipe = Recipe(
                    encoder_lr=self.encoder_lrs[at],
                    head_lr=self.head_lrs[at],
                    epochs=self.epochs,
                    batch_size=self.batch_size,
                    weight_decay=self.weight_decay,
                )
                title = f"semi, {target}"
                tuned = tune(encoder, data, task, labelled_F, recipe, self.seed, title)
                scores_MC = tuned.scores(data.test)
                yield from self.accuracies(task, scores_MC, target=target)
                yield f"{target}/counts/labelled", len(labelled_F)

    def _write_names(
        self, encoder: FrozenEncoder, data: EvaluationData, target: str, names: list[str]
    ) -> None:
        workspace = encoder.bench.workspace
        if workspace is None or encoder.compute.rank != 0:
            return
        mark = data.fingerprints["train"][:6]
        of = f"{readable(data.train.name)}-{target.replace(' ', '-')}-seed{self.seed}-{mark}"
        write_text(workspace / "subsets" / f"{short_name(of)}.txt", "\n".join(names) + "\n")


def draw_share(labels_N: Tensor, share: float, seed: int) -> Tensor:
    """Positions of a share of each class, at least one image; a larger share has the smaller."""
    generator = np.random.default_rng(seed)
    labels = labels_N.numpy()
    drawn = []
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        drawn.append(members[: max(1, round(share * len(members)))])
    return torch.from_numpy(np.sort(np.concatenate(drawn)))


def positions_listed(file: Path, names: list[str]) -> Tensor:
    """Positions of images that a file names, one per line, with or without folders; ascending."""
    if not file.is_file():
        raise UserError(f"no list {file} of labelled images")
    listed = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        parts = PurePosixPath(name).parts
        for start in range(len(parts)):
            positions.setdefault("/".join(parts[start:]), []).append(position)
    missing = [name for name in listed if name not in positions]
    if missing:
        raise UserError(
            f"{len(missing)} of the {len(listed)} images listed in {file} are not in the training "
            f"set, the first is {missing[0]!r}; its images are called {names[0]!r} and so on."
        )
    unclear = [name for name in listed if len(positions[name]) > 1]
    if unclear:
        raise UserError(f"{unclear[0]!r} of {file} may be any of {len(positions[unclear[0]])}")
    return torch.tensor(sorted({positions[name][0] for name in listed}))


def _check_classes(task: Task, labelled_F: Tensor, target: str) -> None:
    classes = task.pool_labels_N[labelled_F].unique()
    if len(classes) < 2:
        raise UserError(
            f"the {len(labelled_F)} labelled images of {target!r} show {len(classes)} class; "
            "expected two or more. Give more of them."
        )
