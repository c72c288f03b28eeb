"""What was done to a batch: which operator was applied to which sample, and with what parameters.

Legend: B samples, K operators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, final

import torch
from torch import Tensor

Parameters: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True)
class Record:
    """One view of a batch, as decisions: enough to draw its pixels again.

    Args:
        names: The K operators.
        applied_BK: bool, the operator was applied to the sample.
        parameters: Operator name -> parameter name -> tensor of length B, for every sample, whether
            the operator was applied or not.
    """

    names: tuple[str, ...]
    applied_BK: Tensor
    parameters: dict[str, Parameters]

    def __len__(self) -> int:
        return len(self.applied_BK)

    def __getitem__(self, samples: slice) -> "Record":
        return Record(
            self.names,
            self.applied_BK[samples],
            {
                name: {key: values[samples] for key, values in drawn.items()}
                for name, drawn in self.parameters.items()
            },
        )

    def sharing(self, other: "Record", names: Sequence[str]) -> "Record":
        """This record with the decisions of another on some operators."""
        if not names:
            return self
        shared_K = torch.tensor([name in names for name in self.names])
        return Record(
            self.names,
            torch.where(shared_K, other.applied_BK, self.applied_BK),
            self.parameters | {name: other.parameters[name] for name in names},
        )

    def applied(self, name: str) -> Tensor:
        """applied_B of one operator; all False where the record does not know it."""
        if name not in self.names:
            return torch.zeros(len(self), dtype=torch.bool, device=self.applied_BK.device)
        return self.applied_BK[:, self.names.index(name)]


def join(records: Sequence[Record]) -> Record:
    """Put records of the same operators one after the other."""
    first = records[0]
    if len(records) == 1:
        return first
    return Record(
        first.names,
        torch.cat([record.applied_BK for record in records]),
        {
            name: {
                key: torch.cat([record.parameters[name][key] for record in records])
                for key in drawn
            }
            for name, drawn in first.parameters.items()
        },
    )


@final
class Views:
    """The augmented views of a batch and the record of each.

    No tuple and no dataclass, on purpose: in mixed precision Fabric would look into one and round
    angles, places and aspect ratios to bfloat16, which heads are asked to tell. Images are of the
    type that the network takes when they are drawn.

    Args:
        images: Of every view, images_BCHW in [0, 1]; views may differ in size.
        records: What was applied to each.
        allowed_BK: bool, which operators might have been applied, before their coins; None where
            all might.
        aspect_B: Width / height of the original images, on the CPU; None where all are square.
        label_B: Their classes, on the CPU, for a method that learns from labels.
    """

    def __init__(
        self,
        images: tuple[Tensor, ...],
        records: tuple[Record, ...],
        allowed_BK: Tensor | None = None,
        aspect_B: Tensor | None = None,
        label_B: Tensor | None = None,
    ) -> None:
        self.images = images
        self.records = records
        self.allowed_BK = allowed_BK
        self.aspect_B = aspect_B
        self.label_B = label_B

    @property
    def names(self) -> tuple[str, ...]:
        """The K operators."""
        return self.records[0].names

    @property
    def active_BK(self) -> Tensor:
        """bool: the operator was applied to the sample in at least one of the views."""
        return reduce(torch.logical_or, (record.applied_BK for record in self.records))
