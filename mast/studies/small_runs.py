"""Small runs that several experiments use, each of minutes on a CPU."""

from typing import Any, NamedTuple

from mast.config import PretrainConfig
from mast.data import CanvasSet
from mast.studies.experiment import Workplace
from mast.studies.sets import drawn_positions, link


def _narrow(*channels: int) -> dict[str, Any]:
    """A ResNet-10 of these channels."""
    options = {"layers": [1, 1, 1, 1], "channels": list(channels)}
    stem = {"stem_type": "deep", "stem_width": 16}
    return {"name": "timm:resnet18", "options": {**options, **stem}}


NARROW = _narrow(32, 64, 128, 256)
# Narrower again: two pretrainings in minutes on two cores.
NARROWER = {**_narrow(16, 32, 64, 256), "stem_stride": 2}
CIFAR = "cifar10-10k"  # images of CIFAR-10 without labels
IMAGES = 10_000
SIZE = 32


class SmallRun(NamedTuple):
    """A run: its recipe, its images (of the workplace, or generated) and what differs."""

    recipe: str
    data: str
    changes: dict[str, Any]

    def configure(self, name: str, workplace: Workplace) -> PretrainConfig:
        """Its configuration at a workplace."""
        data = workplace.derived(CIFAR) if self.data == CIFAR else self.data
        return workplace.configure(name, self.recipe, data, **self.changes)


def _changes(size: int, epochs: int, **objective: Any) -> dict[str, Any]:
    encoder = {**NARROW, "stem_stride": 2}
    return {"size": size, "epochs": epochs, "encoder": encoder, "objective": objective}


GUARDED = "mast5_guarded_small"
FIFTEEN = {"views": "mast15"}
RUNS = {
    "factors_mast5": SmallRun(GUARDED, "factors@train", _changes(32, 12, uncertainty=True)),
    "factors_exempt": SmallRun("mast5_small", "factors@train", _changes(32, 12)),
    "factors64_mast15": SmallRun(
        GUARDED, "factors@train", FIFTEEN | _changes(64, 12, uncertainty=True)
    ),
    "factors_small": SmallRun(GUARDED, "factors@train:4096", _changes(32, 6)),
    "cifar_mast5": SmallRun(GUARDED, CIFAR, _changes(32, 10, uncertainty=True)),
    "cifar_mast15": SmallRun(GUARDED, CIFAR, FIFTEEN | _changes(32, 10, uncertainty=True)),
    "cifar_mast5_paper": SmallRun(GUARDED, CIFAR, _changes(32, 10, uncertainty=True, mode="paper")),
    "cifar_exempt": SmallRun("mast5_small", CIFAR, _changes(32, 10)),
    "cifar_vicreg5": SmallRun("vicreg5_small", CIFAR, _changes(32, 10)),
}


def link_cifar(
    workplace: Workplace, images: int = IMAGES, name: str = CIFAR, flat: bool = True
) -> CanvasSet:
    """Make a set of CIFAR-10's training images, flat without labels; all are returned."""
    everything = workplace.open("cifar10/train", SIZE)
    index_N = drawn_positions(len(everything), images)
    link(
        everything,
        workplace.sets / "cifar10" / "train",
        index_N,
        workplace.derived(name),
        flat=flat,
    )
    return everything


def run_facts(name: str, config: PretrainConfig) -> dict[str, Any]:
    """What a run was, for the record."""
    return {
        "name": name,
        "data": config.data.spec.rpartition("/")[2],
        "method": config.method,
        "views": config.views,
        "size": config.size,
        "epochs": config.epochs,
        "staged": config.schedule.staged,
        "mode": getattr(config.objective, "mode", None),
    }
