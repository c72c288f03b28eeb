"""Representations of a set by a frozen encoder, taken once and shared by the protocols.

Images are float in [0, 1]; the encoder normalises inside. B images a batch, N in the set,
D dimensions, H and W pixels.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from mast.augment import center_views
from mast.core.display import track
from mast.core.errors import UserError
from mast.core.launch import make_fabric
from mast.core.memory import keep_freed_memory
from mast.evaluate.store import FeatureStore, fingerprint

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from mast.data.canvas import CanvasSet
    from mast.evaluate.data import EvaluationData, ObjectData


_log = logging.getLogger("mast")


@dataclass(frozen=True)
class Change:
    """What is done to the views of a set before the encoder sees them.

    Args:
        name: Stands for it beside the features that were taken; equal names, equal changes.
        apply: From images_BCHW in [0, 1] and the positions of these images in their set, to
            images of the same shape; a pure function of both.
    """

    name: str
    apply: Callable[[Tensor, Tensor], Tensor]


GATHERED = 16384  # rows that processes exchange at a time
SMALL = 96  # pixels; up to here the whole centre square is shown
CROP_FRACTION = 0.875  # of the short side above it: 224 of 256


def crop_fraction(size: int) -> float:
    """The share of the short side that a test view of `size` pixels shows."""
    return CROP_FRACTION if size > SMALL else 1.0


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every submodule in evaluation mode, then each back as it was.

    `module.train(was)` would not do: it thaws a batch normalisation that was frozen on purpose.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def represent(encoder: nn.Module, images_BCHW: Tensor, dtype: torch.dtype) -> Tensor:
    """One batch through the encoder, in mixed precision unless `dtype` is float32.

    Args:
        encoder: Module in evaluation mode, on the device of the images.
        images_BCHW: Float in [0, 1].
        dtype: float32 or bfloat16.

    Returns:
        representation_BD, float32, on the same device.

    Raises:
        UserError: If the encoder does not return one vector an image.
    """
    mixed = dtype is not torch.float32
    with torch.autocast(images_BCHW.device.type, dtype if mixed else None, enabled=mixed):
        representation_BD = encoder(images_BCHW)
    if representation_BD.ndim != 2 or len(representation_BD) != len(images_BCHW):
        raise UserError(
            f"expected the encoder to return a representation of shape ({len(images_BCHW)}, D), "
            f"got {tuple(representation_BD.shape)}. Pool its feature map first."
        )
    return representation_BD.float()


def extract(
    encoder: nn.Module,
    canvas_set: CanvasSet,
    size: int,
    *,
    batch_size: int = 256,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    change: Change | None = None,
    fabric: Fabric | None = None,
) -> Tensor:
    """The representation of every image of a set, from its central view.

    The central view shows 87.5 % of the short side above 96 pixels and all of it below. The
    encoder is moved to `device` and its mode is restored afterwards.

    Args:
        encoder: Takes images_BCHW in [0, 1], returns representation_BD.
        canvas_set: The images.
        size: Side of the views in pixels.
        batch_size: Images in one forward pass.
        device: Where to compute; None stays where the encoder is.
        dtype: float32, or bfloat16 for mixed precision.
        change: What is done to the views first, if anything.
        fabric: Of the processes that share the work, batch by batch; None: this one does it all.

    Returns:
        features_ND, float32, on the CPU, in the order of the set; the same on all processes.

    Raises:
        UserError: If the set is empty or a feature is NaN or infinite.
    """
    if len(canvas_set) == 0:
        raise UserError(f"the set {canvas_set.name!r} has no images. Give one with images.")
    device = place(encoder, device)
    if device.type == "cpu":
        keep_freed_memory()
    rank, processes = (0, 1) if fabric is None else (fabric.global_rank, fabric.world_size)
    starts = range(0, len(canvas_set), batch_size)
    # A process without a batch of its own still has to know how many dimensions there are.
    mine = starts[rank::processes] or starts[:1]
    features_ND = torch.empty(0)
    with evaluating(encoder), torch.inference_mode():
        for start in track(mine, f"features of {canvas_set.name}", len(mine)):
            stop = min(start + batch_size, len(canvas_set))
            canvas_BHWC, aspect_B = canvas_set.batch(torch.arange(start, stop))
            images_BCHW = center_views(
                canvas_BHWC.to(device), aspect_B.to(device), size, crop_fraction(size)
            )
            if change is not None:
                images_BCHW = change.apply(images_BCHW, torch.arange(start, stop))
            features_BD = represent(encoder, images_BCHW, dtype).cpu()
            if start == mine[0]:
                with torch.inference_mode(mode=False):  # so that a probe may differentiate
                    features_ND = torch.zeros(len(canvas_set), features_BD.shape[1])
            if start in starts[rank::processes]:
                features_ND[start:stop] = features_BD
    if fabric is not None and processes > 1:
        for chunk_RD in features_ND.split(GATHERED):
            chunk_RD.copy_(cast(Tensor, fabric.all_reduce(chunk_RD, reduce_op="sum")))
    _check_finite(features_ND, canvas_set)
    return features_ND


def place(encoder: nn.Module, device: torch.device | str | None) -> torch.device:
    """Move the encoder to `device`, or find where it is if that is None."""
    if device is None:
        tensors = [*encoder.parameters(), *encoder.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")
    encoder.to(device)
    return torch.device(device)


def _check_finite(features_ND: Tensor, canvas_set: CanvasSet) -> None:
    bad_N = ~torch.isfinite(features_ND).all(dim=1)
    if bad_N.any():
        first = canvas_set.identifiers[int(bad_N.nonzero()[0])]
        raise UserError(
            f"the encoder gave NaN or infinite features for {int(bad_N.sum())} of {len(bad_N)} "
            f"images of {canvas_set.name!r} (the first is {first}). Its weights may have "
            "diverged: evaluate an earlier checkpoint, or float32 if this was mixed precision."
        )


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
            precision = "32-true" if self.dtype is torch.float32 else "bf16-mixed"
            self._fabric = make_fabric(self.device.type, precision=precision)  # type: ignore[arg-type]
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
