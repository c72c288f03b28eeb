"""An encoder as an object: images to features, with invariances chosen per call.

N images, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from mast.core.compute import Compute
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.kinds import Device
from mast.core.launch import find_device
from mast.data import DataConfig, open_photos, set_name
from mast.data.photos import opener
from mast.encoders.extract import represent
from mast.encoders.load import EncoderOptions, load, source_name
from mast.invariance.adapted import Adapted
from mast.invariance.choice import InvarianceChoice, adapted_encoder, load_search_encoder
from mast.invariance.measure import FEWEST, at_depths, measured
from mast.models.encoders import check_images, evaluating
from mast.models.pretrained import DEFAULT

Choice = str | Sequence[str]


@final
class Encoder:
    """An image encoder whose invariance is chosen with each call.

        encoder = mast.Encoder()
        encoder.encode("photos")                           # (N, D) float32
        encoder.encode(["a.jpg", "b.jpg"], ignore="color")

    Args:
        encoder: Pretrained weights such as "timm:resnet18.a1_in1k", a run, an adapted folder, a
            file, or a module from RGB images (B, 3, H, W) in [0, 1] to (B, D), which may have
            attributes `size` and `layers`. The default encoder if omitted.
        size: Input size in pixels; by default that of the weights. Required for a module without
            an attribute `size`.
        weights: A checkpoint to load into the named architecture.
        download: Whether weights may be downloaded.
        untrained: Whether to use random weights for a named architecture.
        device: auto, cpu or cuda.

    Attributes:
        size: Input size in pixels.
        adapted: The encoder with the measured subspaces; None before `measure`.

    Raises:
        UserError: No such encoder, or one without weights.
    """

    @entry(draws=True)
    def __init__(
        self,
        encoder: str | Path | nn.Module | None = None,
        size: int | None = None,
        weights: str | Path | None = None,
        download: bool = False,
        untrained: bool = False,
        device: Device = "auto",
    ) -> None:
        source = DEFAULT if encoder is None else encoder
        self._compute = Compute(find_device(device))
        self.adapted: Adapted | None = adapted_encoder(source, size, weights)
        self._source = source if self.adapted is None else self.adapted.encoder
        size = size if self.adapted is None else self.adapted.size
        self._loaded = load(self._source, size, weights, download, untrained)
        self.size = self._loaded.size

    def __repr__(self) -> str:
        measured = ", measured" if self.adapted else ""
        return f"Encoder({source_name(self._source)!r}, size={self.size}{measured})"

    @property
    def module(self) -> nn.Module:
        """The encoder, with its subspaces if measured."""
        return self.adapted or self._loaded.module

    @entry(draws=True)
    def measure(self, photos: Any) -> Encoder:
        """Measure how operators change the features of some photos, for `ignore` and `match`.

        Otherwise the first call of `encode` with one of them measures on its own images.

        Args:
            photos: Ten images or more, as for `encode`, but not a tensor.

        Returns:
            This encoder.

        Raises:
            UserError: Fewer images; images that cannot be read.
        """
        canvases = open_photos(self._config(photos), self.size, self._loaded.module)
        self.adapted = measured(
            at_depths(self._loaded, self._source), self._source, canvases, self._compute
        )
        if self.adapted is None:
            raise UserError(f"photos: expected {FEWEST} or more, got {len(canvases)}")
        return self

    @entry(draws=True)
    def encode(self, images: Any, ignore: Choice = (), match: Choice = ()) -> np.ndarray:
        """Features of images, to compare by cosine.

        Args:
            images: A folder or another set by name, files, a DataFrame with a column of paths, PIL
                images, or a tensor (N, 3, size, size), RGB in [0, 1].
            ignore: Changes that should not count: operators, properties such as "color", or "all".
            match: Operators or properties to compare by, and nothing else.

        Returns:
            (N, D) float32, in the order of the images; for a folder, sorted by path.

        Raises:
            UserError: An image that cannot be read; with ignore or match before `measure`, a tensor
                or too few images to measure on.
        """
        chosen = InvarianceChoice(ignore=ignore, match=match)
        photos = None if isinstance(images, Tensor) else opener(self._config(images))
        # all stages of an adapted encoder if chosen
        module = self.adapted if self.adapted and chosen.of_depths else self._loaded.module
        options = EncoderOptions(module, self.size)
        by = load_search_encoder(options, chosen, self._compute, photos=photos)
        if photos is None:
            return self._of_tensor(images, by.encoder.module)
        canvases = by.opened(photos)
        if chosen.of_depths and by.adapted is None:
            raise UserError(f"ignore and match need {FEWEST} photos: call measure(photos) first")
        self.adapted = self.adapted or by.adapted
        return by.features(canvases).numpy()

    def _of_tensor(self, images_NCHW: Tensor, module: nn.Module) -> np.ndarray:
        with evaluating(module), torch.inference_mode():
            check_images(self._loaded.module, images_NCHW)
            batches = images_NCHW.split(self._compute.images_at_once(self.size))
            device = self._compute.place(module)
            parts = [represent(module, part.to(device), torch.float32).cpu() for part in batches]
        return torch.cat(parts).numpy()

    @staticmethod
    def _config(images: Any) -> DataConfig:
        return DataConfig(set_name(images), max_broken=0.0)
