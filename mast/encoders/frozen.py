"""An encoder for protocols: its features, and a bench for trainings.

N images in a set, D dimensions of the representation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from mast.core.bench import Bench
from mast.core.compute import Compute
from mast.core.errors import UserError
from mast.core.memory import keep_freed_memory
from mast.core.reading import Layout
from mast.data.decode import crop_fraction
from mast.data.store import ImageStore, key_of
from mast.encoders.changes import Change
from mast.encoders.extract import extract, in_layout, in_range, represent, test_views
from mast.encoders.feature_file import FeatureFile
from mast.encoders.fingerprint import fingerprint
from mast.models import Encoder
from mast.models.encoders import evaluating
from mast.models.folded import folded

if TYPE_CHECKING:
    from pathlib import Path

    from mast.data.canvas import CanvasSet

VERSION = 3  # version of views and features; a new one ignores cached features
ROWS = 8192  # features to map at once


class InSpace(nn.Module):
    """An encoder of images to features (B, F), followed by a map to a space (B, D)."""

    def __init__(self, encoder: nn.Module, seen: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.encoder = encoder
        self.seen = seen

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.seen(self.encoder(images_BCHW).float())


class FrozenEncoder:
    """Features of a frozen encoder, each extracted once.

    Args:
        module: Takes images_BCHW in [0, 1], returns representation_BD.
        compute: Device and batch size; by default those of the bench.
        store: Cache of features; None for memory only.
        description: Description of the encoder, for results.
        bench: Where protocols train; by default one without a workspace.
        whole: For an `InSpace` module, its encoder without the map, whose features are extracted
            and cached for all spaces.
        kept_as: Key of its features in the store; by default its fingerprint.
        representations: Loads another representation of the same run, by name.

    Attributes:
        device: Where the module is.
    """

    def __init__(
        self,
        module: nn.Module,
        compute: Compute | None = None,
        store: ImageStore | None = None,
        description: Mapping[str, Any] | None = None,
        bench: Bench | None = None,
        whole: FrozenEncoder | None = None,
        kept_as: str | None = None,
        representations: Callable[[str], FrozenEncoder] | None = None,
    ) -> None:
        if compute is None:
            compute = Compute() if bench is None else bench.compute
        self.module = module
        self.compute = compute.placed(module)
        self.device = self.compute.place(module)
        self.store = store
        self._kept_as = kept_as
        self.whole = whole
        self._fast: nn.Module | None = None  # the module as it encodes
        self.description = dict(description or {})
        self.bench = bench or Bench(self.compute)
        self.representations = representations
        # Holds a reference to the set, so that its id is not reused.
        self._extracted: dict[tuple[int, int, str | None], tuple[CanvasSet, Tensor]] = {}

    @functools.cached_property
    def identity(self) -> str:
        """The `fingerprint` of the weights, computed once."""
        return self.description.get("fingerprint") or fingerprint(self.module, None)

    def features(self, canvas_set: CanvasSet, size: int, change: Change | None = None) -> Tensor:
        """Features (N, D) of a set, extracted on the first call; float32 on the CPU."""
        key = (id(canvas_set), size, None if change is None else change.name)
        if key not in self._extracted:
            self._extracted[key] = (canvas_set, self._stored(canvas_set, size, change))
        return self._extracted[key][1]

    def kept_as(self, size: int) -> str:
        """The features' key in the store: all that they depend on, except the images."""
        parts = (self._kept_as or self.identity, size, crop_fraction(size), self.compute.dtype)
        return key_of(VERSION, *parts, self.device.type).hex()

    def pool_features(self, pool: tuple[CanvasSet, ...], size: int) -> Tensor:
        """Concatenated features (N, D) of several sets."""
        return torch.cat([self.features(canvas_set, size) for canvas_set in pool])

    def extract(
        self,
        canvas_set: CanvasSet,
        size: int,
        change: Change | None = None,
        keep: Callable[[int, Tensor], None] | None = None,
    ) -> Tensor:
        """Like `features`, but without the cache; all processes share the work."""
        if self.whole is not None:
            return self._seen(self.whole.extract(canvas_set, size, change))
        if isinstance(self.module, FeatureFile):
            return self.module.of(canvas_set) if change is None else self.module.refuse()
        if self._fast is None and len(canvas_set):
            self._fast = self._folded(test_views(canvas_set, range(1), size))
        return extract(self._fast or self.module, canvas_set, size, self.compute, change, keep)

    def see(self, keys: Sequence[bytes], planes_BPVV: np.ndarray, layout: Layout) -> None:
        """Encode newly decoded images, and cache their features."""
        if self.store is None or not self.store.keeps:
            return
        size = planes_BPVV.shape[-1]
        if self._fast is None:
            self._fast = self._folded(in_layout(planes_BPVV[:1], layout))
        if self.device.type == "cpu":
            keep_freed_memory()
        with evaluating(self._fast), torch.inference_mode():
            parts = [
                represent(self._fast, in_layout(part, layout).to(self.device), self.compute.dtype)
                for part in np.array_split(
                    planes_BPVV, math.ceil(len(keys) / self.compute.images_at_once(size))
                )
            ]
        features_BD = torch.cat(parts).cpu()
        if in_range(features_BD):  # otherwise `features` reports the image
            self.store.add_features(
                self.kept_as(size), keys, features_BD.numpy(), self._about(size)
            )

    def _folded(self, images_BCHW: Tensor) -> nn.Module:
        """The module, or a faster equivalent."""
        encoder = getattr(self.module, "encoder", self.module)
        on_cpu = self.device.type == "cpu" and isinstance(encoder, Encoder)
        return folded(self.module, images_BCHW) if on_cpu else self.module

    def _about(self, size: int) -> str:
        """Readable description of the features in the store."""
        return f"{self.description.get('source', 'a module')} at {size} pixels"

    def _stored(self, canvas_set: CanvasSet, size: int, change: Change | None) -> Tensor:
        """Features from the store; missing ones are computed and added."""
        if self.whole is not None:
            return self._seen(self.whole.features(canvas_set, size, change))
        if self.store is None:
            return self.extract(canvas_set, size, change)
        name, keys = self.kept_as(size), canvas_set.keys
        if change is not None:  # changes depend on the place in the set
            keys = [key_of(key, at, change.name) for at, key in enumerate(keys)]
        known_ND, known_N = map(torch.from_numpy, self.store.features(name, keys))
        # All processes agree: if one lacks features, all extract.
        lacking_N = self.compute.sum((~known_N).float().to(self.device)).cpu() > 0
        first = dict[bytes, int]()
        for at, key in enumerate(keys):
            first.setdefault(key, at)
        at_M = [at for at in first.values() if lacking_N[at]]
        if not at_M:
            return known_ND
        if change is not None:
            at_M = [*range(len(keys))]

        def keep(start: int, features_BD: Tensor) -> None:
            if self.store is not None and self.compute.rank == 0:
                batch = [keys[at] for at in at_M[start : start + len(features_BD)]]
                self.store.add_features(name, batch, features_BD.numpy(), self._about(size))

        if len(at_M) == len(keys):
            return self.extract(canvas_set, size, change, keep)
        some_MD = self.extract(canvas_set.part(at_M, canvas_set.name), size, None, keep)
        features_ND = some_MD.new_zeros(len(keys), some_MD.shape[1])
        if known_N.any():
            features_ND[:] = known_ND
        features_ND[at_M] = some_MD
        return features_ND[[first[key] for key in keys]]

    def _seen(self, features_NF: Tensor) -> Tensor:
        """Map features of the whole encoder to the space, on the CPU."""
        assert isinstance(self.module, InSpace)
        parts = [self.module.seen(part_RF.to(self.device)).cpu()
                 for part_RF in features_NF.split(ROWS)]  # fmt: skip
        return torch.cat(parts)

    def representation(self, name: str) -> FrozenEncoder:
        """Another representation of the same run, such as its "embedding"."""
        if self.representations is None:
            raise UserError(
                f"the {name} needs a run folder of `mast`, without ignore, match and space; here "
                "is an encoder alone."
            )
        return self.representations(name)

    def unfinished(self, protocol: Any, data: Any, **details: Any) -> Path | None:
        """`Bench.unfinished`, for a protocol on this encoder and some data."""
        about = (data.fingerprints, data.size, self.compute.dtype, self.identity, details)
        return self.bench.unfinished(protocol, *about)
