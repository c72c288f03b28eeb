"""What was loaded, as protocols receive it."""

from pathlib import Path

from torch import nn

from mast.data import default_cache
from mast.measure.bench import Bench
from mast.measure.compute import Compute
from mast.measure.frozen import FrozenEncoder
from mast.measure.store import FeatureStore, fingerprint
from mast.runs.load import Loaded, called


def frozen(
    loaded: Loaded,
    source: str | Path | nn.Module,
    compute: Compute,
    cache: bool,
    bench: Bench | None = None,
) -> FrozenEncoder:
    """What was loaded, with what its features are found by.

    Args:
        loaded: By `load`.
        source: What the user named.
        compute: How it is run.
        cache: Whether features are kept for the next call. Those of a module of the user's own are
            not: its code may change where its weights do not.
        bench: Where protocols train.
    """
    identity = fingerprint(loaded.module, loaded.description)
    kept = cache and not isinstance(source, nn.Module)
    store = FeatureStore(default_cache() / "features", identity) if kept else None
    description = {"source": called(source), "fingerprint": identity, **loaded.description}
    return FrozenEncoder(loaded.module, compute, store, description, bench)
