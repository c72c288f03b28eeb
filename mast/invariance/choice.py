"""The choice of invariances in which to compare images.

N images, D dimensions, F features of all stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor, nn

from mast.augment import OPERATORS, named_operators, operators_for
from mast.core.arguments import as_list
from mast.core.bench import Bench
from mast.core.compute import Compute
from mast.core.display import say
from mast.core.errors import UserError
from mast.core.files import named, read_text
from mast.core.reading import Reading
from mast.core.tensors import digest
from mast.data import CanvasSet
from mast.encoders.fingerprint import fingerprint
from mast.encoders.frozen import FrozenEncoder, InSpace
from mast.encoders.load import ADAPTED, EncoderOptions, Loaded, frozen, load, source_name
from mast.invariance.adapted import Adapted, load_adapted
from mast.invariance.measure import FEWEST, at_depths, loaded_depths, measured
from mast.invariance.pairs import check_weights, read_weights
from mast.invariance.subspaces import Weights

DEPTHS = "depths"  # all stages, standardized; ignores nothing


@dataclass(frozen=True)
class InvarianceChoice:
    """A choice of invariances; raises if choices conflict.

    Args:
        ignore: Operators or properties to be invariant to.
        match: Operators or properties to compare images by.
        space: A file of property weights, or `DEPTHS`.
        pairs: Whether weights will be fitted to pairs by `SearchEncoder.weighted`.
    """

    ignore: str | Sequence[str] = ()
    match: str | Sequence[str] = ()
    space: str | Path | None = None
    pairs: bool = False

    def __post_init__(self) -> None:
        if (self.ignore or self.match) and (self.space or self.pairs):
            raise UserError(
                "expected only one of ignore/match, space and same/different, got several"
            )

    @property
    def weights_file(self) -> str | Path | None:
        """The file of property weights, if any."""
        return None if self.pairs or str(self.space) == DEPTHS else self.space

    @property
    def of_depths(self) -> bool:
        """Whether images are compared in a space of all stages."""
        return bool(self.words or self.pairs or self.space)

    @property
    def words(self) -> dict[str, list[str]]:
        """The "ignored" and "matched" names, sorted."""
        words = {"ignored": as_list(self.ignore), "matched": as_list(self.match)}
        return {kind: sorted(set(names)) for kind, names in words.items() if names}

    @property
    def names(self) -> list[str]:
        """Parts of a result folder's name, such as ignored-color; digits of a hash for a file."""
        if (file := self.weights_file) is not None:
            return [f"space-{Path(file).stem}-{digest({}, read_text(named(file)))[:8]}"]
        words = {DEPTHS: []} if self.space else self.words
        return ["-".join([kind, *names]) for kind, names in words.items()]


@dataclass(frozen=True)
class SearchEncoder:
    """An encoder that returns the features in which images are compared.

    Attributes:
        encoder: The encoder.
        size: Side of its views in pixels.
        chosen: Operators that are "ignored" and "matched", "weighted" properties, or the "space".
        adapted: The encoder with its subspaces, if the choice needs them.
    """

    encoder: FrozenEncoder
    size: int
    chosen: dict[str, list[str]] = field(default_factory=dict)
    adapted: Adapted | None = None

    def opened(self, photos: Callable[..., CanvasSet], reading: Reading | None = None) -> CanvasSet:
        """Open a set; new images are encoded while they are decoded."""
        see = (self.encoder.whole or self.encoder).see
        return photos(self.size, self.encoder.module, see, reading)

    def features(self, canvases: CanvasSet) -> Tensor:
        """Features (N, D) of a set, cached if the encoder has a cache."""
        return self.encoder.features(canvases, self.size)

    def extract(self, canvases: CanvasSet) -> Tensor:
        """Like `features`, but without the cache."""
        return self.encoder.extract(canvases, self.size)

    def depths(self, canvases: CanvasSet, keep: bool = True) -> Tensor:
        """Features of all stages (N, F) of an adapted encoder."""
        assert self.encoder.whole is not None
        whole = self.encoder.whole
        return (whole.features if keep else whole.extract)(canvases, self.size)

    def weighted(self, weights: Weights) -> SearchEncoder:
        """An adapted encoder in the space of property weights."""
        assert self.adapted is not None
        assert self.encoder.whole is not None
        chosen = {"weighted": [f"{name} {value:.6g}" for name, value in weights.items()]}
        space = self.adapted.subspaces.weighted(weights)
        encoder = _in_space(self.encoder.whole, space, chosen, self.encoder.bench)
        return replace(self, encoder=encoder, chosen=chosen)


def load_search_encoder(
    options: EncoderOptions,
    invariances: InvarianceChoice,
    compute: Compute,
    bench: Bench | None = None,
    photos: Callable[..., CanvasSet] | None = None,
    loaded: Loaded | None = None,
) -> SearchEncoder:
    """Load an encoder for comparing images; other arguments as for `frozen`.

    Args:
        loaded: The encoder, if already loaded.
        photos: Opens images to measure operators on, if the encoder is not adapted; gets the view
            size, the encoder and a function for new views (`see` of `open_photos`).

    Raises:
        UserError: As for `load`; operators that were not measured or leave no dimension; another
            size than the adapted one; a choice without adapted encoder or photos.
    """
    words = invariances.words
    for names in words.values():
        named_operators(names, tuple(OPERATORS))
    if (file := invariances.weights_file) is not None:
        check_weights(file)
    encoder = options.run
    adapted = None
    if invariances.of_depths:
        adapted = adapted_encoder(encoder, options.size, options.weights)
    if adapted is not None:
        chosen = {kind: adapted.named(names) for kind, names in words.items()}
    else:
        loaded = loaded or load(*options)
        if invariances.of_depths:
            if photos is None:
                raise UserError(
                    f"ignore and match need measurements of {source_name(encoder)}: pass the "
                    "folder of `mast adapt`, or call measure(photos) first"
                )
            at = at_depths(loaded, encoder)
            canvases = photos(at.size, at.module, frozen(at, encoder, compute).see)
            adapted = measured(at, encoder, canvases, compute)
            if adapted is None and (invariances.pairs or file):
                raise UserError(f"pairs and space need {FEWEST} photos, got {len(canvases)}")
        if adapted is None:
            return SearchEncoder(frozen(loaded, encoder, compute, bench=bench), loaded.size)
        chosen = {kind: _acting(adapted, names) for kind, names in words.items()}
        chosen = {kind: names for kind, names in chosen.items() if names}
    closed = adapted.space(chosen.get("ignored", ()), chosen.get("matched", ()))
    chosen = chosen or {"space": [DEPTHS]}
    whole = frozen(loaded_depths(adapted.depths), encoder, compute)
    by = SearchEncoder(_in_space(whole, closed, chosen, bench), adapted.size, chosen, adapted)
    return by if file is None else by.weighted(read_weights(file, adapted))


def _acting(adapted: Adapted, names: Sequence[str]) -> list[str]:
    """The chosen operators, without those that had no effect, which are printed."""
    meant = named_operators(names, tuple(OPERATORS))
    possible = operators_for(adapted.depths.channels)
    idle = [name for name in meant if name in possible and name not in adapted.operators]
    if idle and "all" not in names:
        say(f"left out, as they do not change the photos: {', '.join(idle)}")
    return [name for name in meant if name in adapted.operators]


def _in_space(
    whole: FrozenEncoder,
    seen: Callable[[Tensor], Tensor],
    chosen: Mapping[str, Sequence[str]],
    bench: Bench | None = None,
) -> FrozenEncoder:
    """A frozen encoder whose features are mapped by `seen`; all spaces share cached features."""
    module = InSpace(whole.module, seen).eval()
    described = {key: each for key, each in whole.description.items()
                 if key not in ("source", "fingerprint")} | {"space": dict(chosen)}  # fmt: skip
    identity = fingerprint(module, described)
    description = {"source": whole.description["source"], "fingerprint": identity, **described}
    return FrozenEncoder(module, whole.compute, None, description, bench, whole)


def adapted_encoder(
    encoder: str | Path | nn.Module, size: int | None, weights: str | Path | None
) -> Adapted | None:
    """The adapted encoder, if `encoder` is or names one."""
    if isinstance(encoder, nn.Module):
        adapted = encoder if isinstance(encoder, Adapted) else None
    else:
        adapted = load_adapted(encoder) if (Path(encoder) / ADAPTED).is_file() else None
    if adapted is not None and (weights is not None or size not in (None, adapted.size)):
        raise UserError(
            f"size and weights: expected none, as {source_name(encoder)} was adapted at "
            f"{adapted.size} pixels"
        )
    return adapted
