"""An encoder as the protocols receive it: its features, and the bench for what must be trained.

N images in a set, D dimensions of the representation.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.data import crop_fraction
from mast.measure.bench import Bench
from mast.measure.changes import Change
from mast.measure.compute import Compute
from mast.measure.features import extract
from mast.measure.store import FeatureStore, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from mast.data.canvas import CanvasSet

_log = logging.getLogger("mast")


class FrozenEncoder:
    """The features of an encoder that stays as it is; each is extracted once.

    Args:
        module: Takes images_BCHW in [0, 1], returns representation_BD.
        compute: How it is run; as the bench says if not given.
        store: Where features are kept for the next process; None keeps them in memory alone.
        description: What is known of the encoder, for the results.
        bench: Where protocols train; one without a workspace if not given.

    Attributes:
        device: Where the module is.
    """

    def __init__(
        self,
        module: nn.Module,
        compute: Compute | None = None,
        store: FeatureStore | None = None,
        description: Mapping[str, Any] | None = None,
        bench: Bench | None = None,
    ) -> None:
        if compute is None:
            compute = Compute() if bench is None else bench.compute
        self.module = module
        self.compute = compute.placed(module)
        self.device = self.compute.place(module)
        self.store = store
        self.description = dict(description or {})
        self.bench = bench or Bench(self.compute)
        trained_on = torch.device(self.bench.compute.device or "cpu")
        assert trained_on.type == self.device.type, "a bench stands where its encoder is"
        # The set is kept beside its features so that its id cannot be taken by another one.
        self._extracted: dict[tuple[int, int, str | None], tuple[CanvasSet, Tensor]] = {}

    @functools.cached_property
    def identity(self) -> str:
        """The `fingerprint` of the weights, taken once."""
        known: str | None = self.description.get("fingerprint")
        if known is None:
            return fingerprint(self.module, None) if self.store is None else self.store.encoder
        return known

    def features(self, canvas_set: CanvasSet, size: int, change: Change | None = None) -> Tensor:
        """Features (N, D) of a set, extracted at the first call; float32 on the CPU."""
        key = (id(canvas_set), size, None if change is None else change.name)
        if key not in self._extracted:
            self._extracted[key] = (canvas_set, self._stored(canvas_set, size, change))
        return self._extracted[key][1]

    def kept_at(
        self, canvas_set: CanvasSet, size: int, change: Change | None = None
    ) -> Path | None:
        """The file of a set's features, whether it is there yet or not; None: they are not kept."""
        if self.store is None:
            return None
        return self.store.path(
            images=canvas_set.fingerprint,
            size=size,
            crop_fraction=crop_fraction(size),
            precision=str(self.compute.dtype),
            device=self.device.type,
            change=None if change is None else change.name,
        )

    def pool_features(
        self, pool: tuple[CanvasSet, ...], size: int, change: Change | None = None
    ) -> Tensor:
        """Features (N, D) of several sets, one after the other."""
        return torch.cat([self.features(canvas_set, size, change) for canvas_set in pool])

    def extract(self, canvas_set: CanvasSet, size: int, change: Change | None = None) -> Tensor:
        """As `features`, but neither looked up nor kept: for what is needed once.

        Several processes share the work, and all have the result.
        """
        return extract(self.module, canvas_set, size, self.compute, change)

    def _stored(self, canvas_set: CanvasSet, size: int, change: Change | None) -> Tensor:
        """Features from the store, or from the encoder and then into the store."""
        path = self.kept_at(canvas_set, size, change)
        if self.store is None or path is None:
            return self.extract(canvas_set, size, change)
        stored_ND = self.store.read(path)
        if stored_ND is not None and len(stored_ND) != len(canvas_set):
            stored_ND = None
        # All processes take the same way: where one lacks the file, all extract.
        lacking = torch.tensor(float(stored_ND is None), device=self.device)
        if float(self.compute.sum(lacking)) == 0:
            assert stored_ND is not None
            return stored_ND
        features_ND = self.extract(canvas_set, size, change)
        if self.compute.rank == 0:
            self._store(path, features_ND)
        return features_ND

    def _store(self, path: Path, features_ND: Tensor) -> None:
        """Write features into the store; a full disk costs the next call time, not this one."""
        assert self.store is not None
        try:
            self.store.write(path, features_ND)
        except UserError as error:
            _log.warning("features are not kept for the next call: %s", error)
