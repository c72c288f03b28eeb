"""Outputs of a whole method for an image, other than its encoder's representation.

Shapes: B images, D dimensions of the embedding, K operators.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mast.augment import PROPERTIES, named_operators
from mast.core.arguments import checked
from mast.core.entry import entry
from mast.core.errors import UserError, unknown
from mast.core.tensors import write_tensors
from mast.methods.base import ENCODER, Method
from mast.models.lora import merged
from mast.models.selection import relative, selection


class Embedding(nn.Module):
    """The embedding of an image, where it is a Gaussian its mean: (B, channels, H, W) to (B, D).

    Which of its invariances are used is chosen at every call.

    Args:
        method: A trained method.

    Attributes:
        operators: Names of the K operators that have a mask; empty for a method without masks.
        trained_with: Names of the operators of its views.
        size: Side of its views in pixels.
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.operators = () if method.subspaces() is None else method.operators
        self.trained_with = method.operators
        self.size = method.encoder.size

    @checked
    def forward(
        self,
        images_BCHW: Tensor,
        ignore: str | Sequence[str] | None = (),
        match: str | Sequence[str] | None = (),
    ) -> Tensor:
        """Features in float32, each dimension times its `weights`.

        Args:
            images_BCHW: In [0, 1], best of side `size`.
            ignore: Operators to which the features must be invariant, by name, or a property such
                as "color": all operators that change it.
            match: Likewise, those from which they must be exempt, so that neighbours agree in what
                these change.
        """
        weight_D = self.weights(ignore, match)
        embedding_BD = self.method.embed(images_BCHW).float()
        return embedding_BD if weight_D is None else embedding_BD * weight_D

    @entry()
    def weights(
        self, ignore: str | Sequence[str] | None = (), match: str | Sequence[str] | None = ()
    ) -> Tensor | None:
        """The weight of each dimension for a choice of ignore and match, (D,).

        Returns:
            None: the whole embedding, which is trained to be invariant to all operators where no
            dimension is exempt from any.
        """
        names = self.operators or self.trained_with
        ignored, matched = (named_operators(chosen, names) for chosen in (ignore, match))
        for name in (*ignored, *matched):
            if name not in self.trained_with:
                raise unknown("operator or property", name, (*self.trained_with, *PROPERTIES))
        if not (ignored or matched):
            return None
        mask_DK = self.masks()
        if mask_DK is not None and not bool((relative(mask_DK) == 1).all()):
            return selection(mask_DK, self.operators, ignored, matched)
        if matched:
            raise UserError(
                "nothing is exempt in this run, so that nothing can be matched by its embedding: "
                "`mast.adapt` finds what to match in any encoder"
            )
        return None

    def masks(self) -> Tensor | None:
        """The masks as the distance uses them, mask_DK; None for a method without masks."""
        return self.method.subspaces()


def save_embedding(method: Method, path: Path, config: Mapping[str, Any]) -> None:
    """Write a method without its encoder (projector, masks, heads) into one file.

    Args:
        method: A trained method.
        path: The file.
        config: Its training configuration as JSON values, stored in the file's header.
    """
    tensors = {  # copies: weights that are shared are written twice
        key: value.clone(memory_format=torch.contiguous_format)
        for key, value in merged(method.state_dict()).items()
        if not key.startswith(ENCODER)
    }
    write_tensors(path, tensors, {"config": config})
