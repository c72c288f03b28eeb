"""Average precision as COCO defines it, of what a detector found in a set.

N objects of one image, found or annotated; H and W pixels of its image.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from mast.core.errors import UserError
from mast.evaluation.intervals import Measured
from paper.protocols.detection.batches import Target, as_target

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from paper.annotated import Annotated

TOOLS = ("faster_coco_eval", "torchmetrics")
KINDS = {"bbox": "objects", "segm": "masks"}  # what COCO calls them, and our targets
MEASURES = {
    "ap": "map",
    "ap50": "map_50",
    "ap75": "map_75",
    "ap_small": "map_small",
    "ap_medium": "map_medium",
    "ap_large": "map_large",
}


def require_tools() -> None:
    missing = [name for name in TOOLS if find_spec(name) is None]
    if missing:
        raise UserError(
            f"detection and segmentation need {' and '.join(missing)}: "
            "`pip install 'mast-ssl[detection]'`"
        )


class AveragePrecision:
    """Collects detections image by image, then compares them with annotations.

    What is found within a crowd counts neither for nor against a detector. Difficult objects are
    treated as crowds of one: VOC would match them by the same overlap as others, so that a box far
    smaller than the object counts as wrong there and as nothing here.
    """

    def __init__(self, source: Annotated, masks: bool) -> None:
        from torchmetrics.detection import MeanAveragePrecision

        self.source = source
        self.masks = masks
        self.metric: Any = MeanAveragePrecision(
            iou_type=("bbox", "segm") if masks else ("bbox",),
            backend="faster_coco_eval",
            sync_on_compute=False,  # it would hang where processes have different numbers of images
        )
        self.indices: list[int] = []

    def add(self, index: int, detections: Target) -> None:
        """Take what was found in the image at a position of the set.

        "boxes" (N, 4), "labels" (N,) from 1, "scores" (N,), and "masks" (N, H, W) bool if compared.
        """
        detections = {key: value.cpu() for key, value in detections.items()}
        self.metric.update([detections], [annotated_target(self.source, index, self.masks)])
        self.indices.append(index)

    def measures(self, fabric: Fabric) -> Iterator[Measured]:
        """The measures over all processes, in percent; COCO's three sizes where there are any."""
        if fabric.world_size > 1:
            self._gather(fabric.world_size)
        values = self.metric.compute()
        for kind, target in KINDS.items() if self.masks else [("bbox", "objects")]:
            prefix = f"{kind}_" if self.masks else ""
            for measure, name in MEASURES.items():
                value = float(values[prefix + name])
                if value >= 0:  # -1 stands for "no such object"
                    yield f"{target}/{measure}", 100 * value

    def _gather(self, processes: int) -> None:
        """Bring together what all processes collected, in the order of the set."""
        states: list[Any] = [None] * processes
        torch.distributed.all_gather_object(states, (self.indices, self.metric.metric_state))
        indices = [index for part, _ in states for index in part]
        order = sorted(range(len(indices)), key=indices.__getitem__)
        self.indices = [indices[at] for at in order]
        for name in self.metric.metric_state:
            items = [item for _, state in states for item in state[name]]
            setattr(self.metric, name, [items[at] for at in order] if items else items)


def annotated_target(source: Annotated, index: int, masks: bool) -> Target:
    """What is annotated in one image, as the metric takes it."""
    objects = source.objects(index)
    target = as_target(source, index, objects, masks)
    ignored_N = objects.crowd_N | objects.difficult_N
    target["iscrowd"] = torch.from_numpy(ignored_N).long()
    target["area"] = torch.from_numpy(objects.area_N)
    return target
