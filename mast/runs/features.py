"""The features in which images are compared: of any encoder, kept for the next call.

N images, D dimensions, F numbers of all depths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from mast.core.arguments import as_list
from mast.core.errors import UserError
from mast.core.files import named, read_text
from mast.core.run import RunFolder
from mast.core.seeds import forked
from mast.core.tensors import digest
from mast.data import CanvasSet
from mast.data.sources import default_cache
from mast.measure.adapted import FILE as ADAPTED
from mast.measure.adapted import Adapted, load_adapted
from mast.measure.approximate import ApproximateIndex, open_index
from mast.measure.bench import Bench
from mast.measure.compute import Compute
from mast.measure.feature_file import FeatureFile
from mast.measure.features import represent
from mast.measure.frozen import FrozenEncoder, InSpace
from mast.measure.pairs import read_weights
from mast.measure.store import FeatureStore, fingerprint
from mast.measure.subspaces import Weights
from mast.methods import Embedding, MatchBy
from mast.models import Encoder
from mast.models.encoders import evaluating
from mast.runs.load import Loaded, Representation, called, load


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


@dataclass(frozen=True)
class Invariances:
    """In which of its features an encoder's user wants images compared.

    Args:
        representation: "encoder", "ensemble" or "embedding"; the encoder if not given. Not where
            operators are ignored or matched.
        ignore: Operators, or properties, to which what is compared is to be invariant.
        match: Likewise, by what these change images are to be compared.
        match_by: What matches, "block" or "heads", where a run has both.
        space: The file of weights that pairs have chosen.
        pairs: Whether pairs are to choose weights: `Compared.weighted` takes these.

    Raises:
        UserError: The choices exclude each other.
    """

    representation: Representation | None = None
    ignore: str | Sequence[str] = ()
    match: str | Sequence[str] = ()
    match_by: MatchBy | None = None
    space: str | Path | None = None
    pairs: bool = False

    def __post_init__(self) -> None:
        if self.weighted and (self.ignore or self.match or self.representation):
            raise UserError(
                "pairs, or the space that they chose, say what is ignored and matched: leave "
                "ignore, match and representation out"
            )
        if self.match_by is not None and not self.match:
            raise UserError(f"match_by {self.match_by} says how to match: give match, too")
        if (self.ignore or self.match) and self.representation is not None:
            raise UserError(
                "what is ignored and matched says in what images are compared: leave out "
                f"representation, got {self.representation}"
            )

    @property
    def weighted(self) -> bool:
        """Whether pairs say how much each property counts."""
        return self.pairs or self.space is not None

    @property
    def words(self) -> dict[str, list[str]]:
        """What is to be "ignored" and "matched", where there is something."""
        words = {"ignored": as_list(self.ignore), "matched": as_list(self.match)}
        return {kind: names for kind, names in words.items() if names}

    @property
    def names(self) -> list[str]:
        """Of a folder, such as ignored-color; none where nothing is chosen.

        A space's has digits of its file, which pairs may write anew.
        """
        if self.space is not None:
            return [f"space-{Path(self.space).stem}-{digest({}, read_text(named(self.space)))[:8]}"]
        return ["-".join([kind, *names]) for kind, names in self.words.items()]


@dataclass(frozen=True)
class Compared:
    """An encoder with the features in which images are compared.

    Attributes:
        encoder: It returns these features.
        size: Side of its views in pixels.
        chosen: The operators that are "ignored" and "matched", where there are some, or how
            properties are "weighted".
        adapted: It with its subspaces, where these say the space.
    """

    encoder: FrozenEncoder
    size: int
    chosen: dict[str, list[str]] = field(default_factory=dict)
    adapted: Adapted | None = None

    def features(self, canvases: CanvasSet) -> Tensor:
        """Features (N, D) of a set; they are kept where the encoder keeps some."""
        return self.encoder.features(canvases, self.size)

    def extract(self, canvases: CanvasSet) -> Tensor:
        """As `features`, but neither looked up nor kept."""
        return self.encoder.extract(canvases, self.size)

    def depths(self, canvases: CanvasSet, keep: bool = True) -> Tensor:
        """Features of all depths (N, F) of an adapted encoder, whatever the space.

        Args:
            canvases: The images.
            keep: Whether they are looked up and kept, as by `features`.
        """
        assert self.encoder.whole is not None
        whole = self.encoder.whole
        return (whole.features if keep else whole.extract)(canvases, self.size)

    def weighted(self, weights: Weights) -> Compared:
        """An adapted encoder in the space of weights."""
        assert self.adapted is not None
        assert self.encoder.whole is not None
        chosen = {"weighted": [f"{name} {value:.6g}" for name, value in weights.items()]}
        space = self.adapted.subspaces.weighted(weights)
        encoder = _in_space(self.encoder.whole, space, chosen, self.encoder.bench)
        return replace(self, encoder=encoder, chosen=chosen)

    def index(self, canvases: CanvasSet, features_ND: Tensor) -> ApproximateIndex:
        """An index of the features of a set; it is kept where they are."""
        return open_index(features_ND, self.encoder.kept_at(canvases, self.size), self.chosen)


def compared(
    encoder: str | Path | nn.Module,
    invariances: Invariances,
    compute: Compute,
    size: int | None = None,
    seed: int = 0,
    weights: str | Path | None = None,
    download: bool = False,
    cache: bool = True,
    bench: Bench | None = None,
) -> Compared:
    """Load an encoder for a comparison of images.

    Args:
        encoder: As `load`.
        invariances: What is compared.
        compute: How the encoder is run.
        size: As `load`.
        seed: As `load`.
        weights: As `load`.
        download: As `load`.
        cache: As `frozen`.
        bench: Where protocols train.

    Raises:
        UserError: As `load`; a choice of operators that the encoder does not have or that leaves no
            dimension; another size than it was adapted at.
    """
    chosen = invariances.words
    adapted = _adapted(encoder) if chosen or invariances.weighted else None
    if adapted is not None:
        if invariances.match_by is not None or weights is not None:
            raise UserError("what is adapted has its own: leave weights and match_by out")
        if size not in (None, adapted.size):
            raise UserError(
                f"it was adapted at {adapted.size} pixels: leave size out, or adapt it at {size}"
            )
        chosen = {kind: adapted.named(names) for kind, names in chosen.items()}
        closed = adapted.space(chosen.get("ignored", ()), chosen.get("matched", ()))
        depths, module = adapted.depths, adapted.encoder
        described = module.describe() if isinstance(module, Encoder) else {}
        loaded = Loaded(depths, adapted.size, {**described, "layers": list(depths.layers)}, Path())
        whole = frozen(loaded, encoder, compute, cache)
        by = Compared(_in_space(whole, closed, chosen, bench), adapted.size, chosen, adapted)
        if invariances.pairs or invariances.space is None:
            return by
        return by.weighted(read_weights(invariances.space, adapted))
    if invariances.weighted:
        raise UserError("pairs choose a space of what `mast adapt` wrote: give its folder")
    if chosen and (isinstance(encoder, nn.Module) or not RunFolder(encoder).config.is_file()):
        if not isinstance(encoder, nn.Module) and (Path(encoder).parent / ADAPTED).is_file():
            raise UserError(f"give the folder of {encoder}, which was adapted")
        raise UserError(
            f"{called(encoder)} can neither ignore nor match yet: `mast adapt` looks at some "
            "photos and writes a folder that can; or give a run of this library"
        )
    kind: Representation = invariances.representation or ("embedding" if chosen else "encoder")
    loaded = load(encoder, kind, size, seed, weights, download)
    if not chosen:
        return Compared(frozen(loaded, encoder, compute, cache, bench), loaded.size)
    whole, embedding = frozen(loaded, encoder, compute, cache), loaded.module
    assert isinstance(embedding, Embedding)
    chosen = {kind: embedding.named(names) for kind, names in chosen.items()}
    with torch.no_grad():
        space = embedding.space(
            chosen.get("ignored", ()), chosen.get("matched", ()), invariances.match_by
        )
    if space.of == "representation":
        loaded = load(encoder, "encoder", size)
        whole = frozen(loaded, encoder, compute, cache)
    return Compared(_in_space(whole, space.seen, chosen, bench), loaded.size, chosen)


def _in_space(
    whole: FrozenEncoder,
    seen: Callable[[Tensor], Tensor],
    chosen: Mapping[str, Sequence[str]],
    bench: Bench | None = None,
) -> FrozenEncoder:
    """A frozen encoder whose features are seen in a space.

    Args:
        whole: It extracts them, and keeps them whatever the space.
        seen: Maps them.
        chosen: The operators that are "ignored" and "matched", or how properties are "weighted".
        bench: Where protocols train.
    """
    module = InSpace(whole.module, seen).eval()
    described = {key: each for key, each in whole.description.items()
                 if key not in ("source", "fingerprint")} | {"space": dict(chosen)}  # fmt: skip
    identity = fingerprint(module, described)
    description = {"source": whole.description["source"], "fingerprint": identity, **described}
    return FrozenEncoder(module, whole.compute, None, description, bench, whole)


def _adapted(encoder: str | Path | nn.Module) -> Adapted | None:
    """What is named, if it was adapted."""
    if isinstance(encoder, nn.Module):
        return encoder if isinstance(encoder, Adapted) else None
    return load_adapted(encoder) if (Path(encoder) / ADAPTED).is_file() else None
