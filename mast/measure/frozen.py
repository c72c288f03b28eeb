"""An encoder as the protocols receive it: how to run it, what it saw, what it has not finished.

N images in a set, D dimensions of the representation.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.core.launch import Device, make_fabric, precision_of
from mast.measure.changes import Change
from mast.measure.features import crop_fraction, extract, place
from mast.measure.store import FeatureStore, fingerprint

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from mast.data.canvas import CanvasSet
    from mast.measure.sets import EvaluationData, ObjectData

_log = logging.getLogger("mast")


class FrozenEncoder:
    """An encoder as the protocols receive it: a module, how to run it, and what it already saw.

    Args:
        module: Takes images_BCHW in [0, 1], returns representation_BD.
        device: Where to compute; None stays where the module is.
        dtype: float32, or bfloat16 for mixed precision.
        batch_size: Images in one forward pass.
        store: Where features are kept for the next process; None keeps them in memory alone.
        about: What is known of it, for the results.
        others: Makes another representation of the same run from its name: "ensemble" or
            "embedding".
        fabric: Launched, where several processes work together; None for this one alone.
        workspace: Folder for the state of unfinished work, by which it is resumed, and for what
            else a protocol writes down; None: nothing is.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        batch_size: int = 256,
        store: FeatureStore | None = None,
        about: Mapping[str, Any] | None = None,
        others: Callable[[str], FrozenEncoder] | None = None,
        fabric: Fabric | None = None,
        workspace: Path | None = None,
    ) -> None:
        self.module = module
        self.store = store
        self.device = place(module, device)
        self.about = dict(about or {})
        self.workspace = workspace
        self._others = others
        self._other: dict[str, FrozenEncoder] = {}
        self._unfinished: list[Path] = []
        self._fabric = fabric
        self.dtype = dtype
        self.batch_size = batch_size
        # The set is kept beside its features so that its id cannot be taken by another one.
        self._seen: dict[tuple[int, int, str | None], tuple[CanvasSet, Tensor]] = {}

    @property
    def fabric(self) -> Fabric:
        """What the protocols that train run through."""
        if self._fabric is None:
            device: Device = "cuda" if self.device.type == "cuda" else "cpu"
            self._fabric = make_fabric(device, precision=precision_of(self.dtype))
        return self._fabric

    @property
    def processes(self) -> int:
        """How many work together."""
        return 1 if self._fabric is None else self._fabric.world_size

    def other(self, representation: str) -> FrozenEncoder:
        """Another representation of the same run.

        Args:
            representation: "ensemble" (masked embeddings side by side) or "embedding".

        Raises:
            UserError: There is only this one.
        """
        if self._others is None:
            raise UserError(
                f"the {representation} needs a run folder of `mast` with its checkpoint; here is "
                "an encoder alone."
            )
        if representation not in self._other:
            self._other[representation] = self._others(representation)
        return self._other[representation]

    def unfinished(
        self, protocol: Any, data: EvaluationData | ObjectData, **about: Any
    ) -> Path | None:
        """Where the state of a training is kept until it is done.

        Args:
            protocol: The protocol with its settings.
            data: The sets.
            about: What tells this training from others of the protocol.

        Returns:
            A file whose name changes with all that the training depends on; None without a
            workspace.
        """
        if self.workspace is None:
            return None
        key = (protocol, data.fingerprints, data.size, self.dtype, self.identity, about)
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        path = self.workspace / "unfinished" / f"{name}.pt"
        self._unfinished.append(path)
        return path

    def finish(self) -> None:
        """Remove the state of what is done: its result is written."""
        if self._fabric is None or self._fabric.is_global_zero:
            for path in self._unfinished:
                path.unlink(missing_ok=True)
        self._unfinished.clear()

    @functools.cached_property
    def identity(self) -> str:
        """The `fingerprint` of the weights, taken once."""
        known: str | None = self.about.get("fingerprint")
        if known is None:
            return fingerprint(self.module, None) if self.store is None else self.store.encoder
        return known

    def features(self, canvas_set: CanvasSet, size: int, change: Change | None = None) -> Tensor:
        """Features (N, D) of a set, extracted at the first call; float32 on the CPU."""
        key = (id(canvas_set), size, None if change is None else change.name)
        if key not in self._seen:
            self._seen[key] = (canvas_set, self._obtain(canvas_set, size, change))
        return self._seen[key][1]

    def take(self, canvas_set: CanvasSet, size: int, change: Change | None = None) -> Tensor:
        """As `features`, but neither looked up nor kept: for what is needed once.

        Several processes share the work, and all have the result.
        """
        return extract(
            self.module,
            canvas_set,
            size,
            batch_size=self.batch_size,
            device=self.device,
            dtype=self.dtype,
            change=change,
            fabric=self._fabric,
        )

    def _obtain(self, canvas_set: CanvasSet, size: int, change: Change | None) -> Tensor:
        """Features from the store, or from the encoder and then into the store."""
        if self.store is None:
            return self.take(canvas_set, size, change)
        path = self.store.path(
            images=canvas_set.fingerprint,
            size=size,
            crop_fraction=crop_fraction(size),
            precision=str(self.dtype),
            device=self.device.type,
            change=None if change is None else change.name,
        )
        features_ND = self.store.read(path)
        if self._everywhere(features_ND is not None):
            assert features_ND is not None
            return features_ND
        features_ND = self.take(canvas_set, size, change)
        if self._fabric is None or self._fabric.is_global_zero:
            self._keep(path, features_ND)
        return features_ND

    def _everywhere(self, here: bool) -> bool:
        """Whether something holds on all processes, so that all take the same way."""
        if self._fabric is None or self._fabric.world_size == 1:
            return here
        lacking = torch.tensor(float(not here), device=self.device)
        return float(cast(Tensor, self._fabric.all_reduce(lacking, reduce_op="sum"))) == 0

    def _keep(self, path: Path, features_ND: Tensor) -> None:
        """Write features into the store; a full disk costs the next call time, not this one."""
        assert self.store is not None
        try:
            self.store.write(path, features_ND)
        except UserError as error:
            _log.warning("features are not kept for the next call: %s", error)

    def pool_features(
        self, pool: tuple[CanvasSet, ...], size: int, change: Change | None = None
    ) -> Tensor:
        """Features (N, D) of several sets, one after the other."""
        return torch.cat([self.features(canvas_set, size, change) for canvas_set in pool])
