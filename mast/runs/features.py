"""Features of any encoder, kept for the next call.

D dimensions, B images.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from mast.core.seeds import forked
from mast.core.tensors import digest
from mast.data.registry import default_cache
from mast.measure.compute import Compute
from mast.measure.feature_file import FeatureFile
from mast.measure.features import represent
from mast.measure.frozen import Bench, FrozenEncoder
from mast.measure.store import FeatureStore, fingerprint
from mast.models.encoders import evaluating
from mast.runs.load import Loaded, called


def frozen(
    loaded: Loaded,
    source: str | Path | nn.Module,
    compute: Compute,
    cache: bool = True,
    bench: Bench | None = None,
) -> FrozenEncoder:
    """What was loaded, as protocols receive it.

    Args:
        loaded: By `load`.
        source: What the user named.
        compute: How it is run.
        cache: Whether features are kept for the next call. Those of a module of the user's own are
            found by what it gives of some images, too: its code may change where its weights do
            not. If it draws, or several processes share the work, they are not kept. Those of a
            file are there already.
        bench: Where protocols train.
    """
    identity: str | None = fingerprint(loaded.module, loaded.description)
    cache = cache and not isinstance(loaded.module, FeatureFile)
    description = {"source": called(source), "fingerprint": identity, **loaded.description}
    if cache and isinstance(source, nn.Module):
        alone = compute.processes == 1
        answers_BD = _answers(loaded.module, loaded.size, compute) if alone else None
        identity = None if answers_BD is None else digest({"answers": answers_BD}, identity)
    store = FeatureStore(default_cache() / "features", identity) if cache and identity else None
    return FrozenEncoder(loaded.module, compute, store, description, bench)


def _answers(module: nn.Module, size: int, compute: Compute) -> Tensor | None:
    """What a module gives of noise, gray noise, a smooth image and a black one; None: it draws."""
    device, shape = compute.place(module), (1, getattr(module, "channels", 3), size, size)
    noise_BCHW = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    gray_BCHW = noise_BCHW.mean(dim=1, keepdim=True).expand(shape)
    smooth_BCHW = nn.functional.interpolate(noise_BCHW[..., :4, :4], (size, size), mode="bilinear")
    parts = (noise_BCHW, gray_BCHW, smooth_BCHW, torch.zeros(shape))
    images_BCHW = torch.cat(parts).to(device)
    with forked(device), evaluating(module), torch.inference_mode():
        first_BD, again_BD = (represent(module, images_BCHW, compute.dtype) for _ in range(2))
    return first_BD if torch.equal(first_BD, again_BD) else None
