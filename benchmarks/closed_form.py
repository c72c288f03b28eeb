"""What else was tried of closed-form subspaces, by five draws of 100 photos.

    python benchmarks/closed_form.py ENCODER --copies NAME=FOLDER... [...] [--question NAME...]

All other arguments, sets and measures are those of `invariances.py`; distractors are 2,500 of its
own, or every second photo of all other sets. Of each way the result has the mean over sets, and how
far it is ahead of the first way: the mean of paired differences, half of its 95 % interval over
photos, and the deviation of the draws. Copies are strong changes, where nothing else is said.

    own         the searched set's own photos: is it the center, the scale, or the distractors?
    strengths   does the lead grow or shrink with the strength of the change?
    composed    several operators at once, for the subspaces and for the copies of two sets
    ridge       ridge and axes, fixed or those under which displacements of others are likeliest
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import invariances as inv
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from measure import RESULTS, report_setting
from torch import Tensor

from mast.augment import operators_for
from mast.core.compute import Compute
from mast.encoders.changes import Change, changed_by
from mast.encoders.extract import extract
from mast.invariance import subspaces
from mast.invariance.measure import STRONGER
from mast.invariance.subspaces import Space, Subspaces

RESULT = RESULTS / "closed_form.json"
DISTRACTORS, STRONG, COMPOSED = 2_500, 2, ("flowers", "tiles")
AXES, RIDGES = (16, 64, 100), (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
Found = dict[str, dict[str, list[np.ndarray]]]  # of each measure and set, of each draw, by photo
Way = tuple[str, Sequence[Mapping[str, inv.View]]]  # of each draw the space for each set


class Study:
    """Sets, and what is found in them.

    Args:
        sets: By name.
        photos: Whose subspaces are used for all.
        distractors: Of another kind than the sets.
        searched: Names of the sets of which there are copies.

    Attributes:
        queries: Copies of the first of a set's tested photos, change by change, by kind and set.
    """

    def __init__(
        self, sets: dict[str, inv.PhotoSet], photos: inv.PhotoSet, distractors: inv.PhotoSet,
        searched: Sequence[str],
    ) -> None:  # fmt: skip
        inv.SHOTS = ()  # not asked here
        self.sets, self.photos = sets, photos
        self.plain = {name: each.plain() for name, each in sets.items()}
        self.distractors_MF = distractors.plain()[:DISTRACTORS]
        self.labels = {name: (each.kinds(), each.bins()) for name, each in sets.items()}
        self.changed = {name: [*sets[name].changed()] for name in searched}
        self.queries = {"": self.strength(STRONG)}
        self.starts = range(0, photos.looked_at, inv.LOOKED_AT)
        self.draws = [photos.subspaces(at, inv.LOOKED_AT) for at in self.starts]

    def strength(self, at: int) -> dict[str, Tensor]:
        """Of each set the copies by changes of one strength."""
        return {name: torch.cat([copies_CF for *_, of, copies_CF in changed if of == at])
                for name, changed in self.changed.items()}  # fmt: skip

    def last(self, features_BF: Tensor) -> Tensor:
        """The encoder's own representation."""
        return features_BF[:, -self.photos.features.seen.depths.widths[-1] :]

    def found(self, way: Sequence[Mapping[str, inv.View]]) -> Found:
        """What is found in the spaces of each draw."""
        found: Found = {}
        for spaces in way:
            vectors: dict[tuple[inv.View, str], Tensor] = {}
            for name, seen in spaces.items():
                for each, plain in {**self.plain, "distractors": self.distractors_MF}.items():
                    if (seen, each) not in vectors:
                        vectors[seen, each] = F.normalize(seen(plain))
                half, vectors_ND = self.sets[name].half, vectors[seen, name]
                others = torch.cat(
                    [vectors[seen, each][::2] for each in self.plain if each != name]
                )
                pools = {"distractors": vectors[seen, "distractors"], "other sets": others}
                results = inv.classified(vectors_ND, *self.labels[name], half)
                for of, queries in self.queries.items():
                    query_QD = F.normalize(seen(queries[name])) if name in queries else None
                    for pool, others_MD in pools.items() if query_QD is not None else ():
                        hits = inv.hits(vectors_ND.roll(-half, 0), others_MD, query_QD)
                        results |= {f"{of}{pool}: {bar}": hit_CN.mean(dim=0).numpy()
                                    for bar, hit_CN in hits.items()}  # fmt: skip
                for measure, values in results.items():
                    found.setdefault(measure, {}).setdefault(name, []).append(values)
        return found


def mean_of(sets: Mapping[str, list[np.ndarray]]) -> list[float]:
    """The mean of sets, half of its 95 % interval over photos, and the deviation of draws."""
    halves = [inv.interval(draws)[1] for draws in sets.values()]
    of_draws = np.mean([[draw.mean() for draw in draws] for draws in sets.values()], axis=0)
    spread = float(of_draws.std(ddof=1)) if len(of_draws) > 1 else 0.0
    half = float(np.square(halves).sum() ** 0.5) / len(halves)
    return [round(value, 2) for value in (float(of_draws.mean()), half, spread)]


def ahead(found: Found, reference: Found) -> dict[str, dict[str, list[float]]]:
    """How far a way is ahead of another, of each measure, by set and on the mean."""
    result = {}
    for measure, sets in found.items():
        differences = {}
        for name, draws in sets.items():
            pairs = reference[measure][name]
            if len(pairs) != len(draws):  # one has no draws
                pairs = [np.mean(pairs, axis=0)] * len(draws)
            differences[name] = [one - other for one, other in zip(draws, pairs, strict=True)]
        result[measure] = {name: inv.interval(each) for name, each in differences.items()}
        result[measure]["mean of sets"] = mean_of(differences)
    return result


def ignore_all(known: Subspaces) -> Space:
    return known.ignoring(tuple(known.factors))


def own(study: Study) -> Iterator[Way]:
    own = {name: study.sets[name].subspaces(0, inv.LOOKED_AT) for name in study.changed}
    other_F = study.photos.plain()[: study.photos.looked_at].mean(dim=0)
    scale_F = study.draws[0].scale_F
    plain = {name: study.plain[name] for name in own}
    centers = {
        "photos": dict.fromkeys(own, other_F),
        "own": {name: each.mean_F for name, each in own.items()},
        "set": {name: each.mean(dim=0) for name, each in plain.items()},
        "set and distractors": {
            name: torch.cat([each, study.distractors_MF]).mean(dim=0)
            for name, each in plain.items()
        },
        "none": dict.fromkeys(own, torch.zeros_like(other_F)),
    }

    def placed(spaces: Mapping[str, Space], center: str) -> dict[str, inv.View]:
        return {name: Space(centers[center][name], each.scale_F, each.axes_MF, each.shrink_M)
                for name, each in spaces.items()}  # fmt: skip

    spaces, of_own = [ignore_all(draw) for draw in study.draws], dict[str, Space]()
    on_scale = dict[str, Space]()
    for name, each in own.items():
        of_own[name] = ignore_all(each)
        moves = {at: moves_RF * each.scale_F / scale_F for at, moves_RF in each.factors.items()}
        on_scale[name] = ignore_all(Subspaces(each.mean_F, scale_F, moves))
    yield "ignore all", [dict.fromkeys(own, space) for space in spaces]
    yield "last map", [dict.fromkeys(own, study.last)]
    yield "own, scale of photos, center photos", [placed(on_scale, "photos")]
    for center, means in centers.items():
        yield f"own, center {center}", [placed(of_own, center)]
        if center != "photos":
            yield f"ignore all, center {center}", [placed(dict.fromkeys(own, spaces[0]), center)]
        yield (
            f"last map, center {center}",
            [{name: lambda x, m=mean_F: study.last(x - m) for name, mean_F in means.items()}],
        )


def strengths(study: Study) -> Iterator[Way]:
    study.queries = {f"{name}, ": study.strength(at) for at, name in enumerate(inv.STRENGTHS)}
    yield "last map", [dict.fromkeys(study.sets, study.last)]
    yield "ignore all", [dict.fromkeys(study.sets, ignore_all(draw)) for draw in study.draws]


def several(photo: inv.Photo, strength: int, draw: random.Random) -> inv.Photo:
    """Two, three or four changes of medium strength."""
    for name in draw.sample([*inv.CHANGES], 2 + strength % len(inv.STRENGTHS)):
        photo = inv.CHANGES[name][1](photo, 1, draw)
    return photo


def at_once(size: int, images: int, seed: int) -> Change:
    """Two to four operators of all, drawn for each image."""
    generator, names = torch.Generator().manual_seed(seed), operators_for(3)
    count_N = torch.randint(2, 5, (images,), generator=generator)
    order_NK = torch.rand(images, len(names), generator=generator).argsort(dim=1).argsort(dim=1)
    changes = [changed_by(name, None, size, images, seed, **STRONGER.get(name, {}))
               for name in names]  # fmt: skip

    def apply(images_BCHW: Tensor, positions_B: Tensor) -> Tensor:
        for at, change in enumerate(changes):
            acts_B = (order_NK[:, at] < count_N)[positions_B]
            if acts_B.any():
                images_BCHW[acts_B] = change.apply(images_BCHW[acts_B], positions_B[acts_B])
        return images_BCHW

    return Change(f"two to four, seed {seed}", apply)


def composed(study: Study) -> Iterator[Way]:
    photos, features = study.photos, study.photos.features
    depths = features.seen.depths
    canvases, count = photos.canvases.part(range(photos.looked_at), photos.name), photos.looked_at
    moved = {}
    for seed in range(3):
        change, name = at_once(depths.size, count, seed), f"several-{seed}"
        found = partial(extract, depths, canvases, depths.size, Compute("cpu"), change)
        moved[name] = features(f"{photos.name}-{name}", found)
    tested = {name: study.sets[name].files[study.sets[name].half :][: inv.CHANGED]
              for name in COMPOSED}  # fmt: skip
    for at in range(3):
        study.queries[f"{2 + at} at once, "] = {
            name: torch.cat([features.changed(f"{name}-several", files, several, strength)
                             for strength in (at, at + 3)])
            for name, files in tested.items()
        }  # fmt: skip
    both = []
    for at, known in zip(study.starts, study.draws, strict=True):
        part = slice(at, at + inv.LOOKED_AT)
        some = {name: values[part] for name, values in moved.items()}
        others = Subspaces.of(photos.plain()[part], some, depths.widths)
        both.append(replace(known, factors={**known.factors, **others.factors}))
    yield "ignore all", [dict.fromkeys(study.sets, ignore_all(draw)) for draw in study.draws]
    yield "last map", [dict.fromkeys(study.sets, study.last)]
    yield "several at once", [dict.fromkeys(study.sets, each.ignoring([*moved])) for each in both]
    yield "both", [dict.fromkeys(study.sets, ignore_all(each)) for each in both]


def ridge(study: Study) -> Iterator[Way]:
    photos, subspaces.AXES, before = study.photos, max(AXES), subspaces.AXES
    whole = [photos.subspaces(at, inv.LOOKED_AT) for at in study.starts]
    subspaces.AXES = before
    of_all = photos.features.moved(
        "photos", photos.canvases.part(range(photos.looked_at), "photos")
    )

    def fewer(known: Subspaces, axes: int) -> Subspaces:
        return replace(known, factors={name: each[:axes] for name, each in known.factors.items()})

    def likeliest(known: Subspaces, first: int) -> tuple[int, float]:
        """Of the displacements of other photos, under a Gaussian of any size."""
        other, likely = slice(first, first + inv.LOOKED_AT), dict[tuple[int, float], float]()
        moved = torch.cat([(of_all[name][other] - photos.plain()[other]) / known.scale_F
                           for name in known.factors])  # fmt: skip
        for axes in AXES:
            value_M, axes_MF = subspaces.axes_of(torch.cat([*fewer(known, axes).factors.values()]))
            along_M, count = (moved @ axes_MF.T).square().mean(dim=0), axes_MF.shape[1]
            rest = moved.square().sum(dim=1).mean() - along_M.sum()
            for share in RIDGES:
                floor = share * value_M.sum() / count
                size = ((along_M / (value_M + floor)).sum() + rest / floor) / count
                volume = (value_M + floor).log().sum() + (count - len(value_M)) * floor.log()
                likely[axes, share] = -float(size.log() + volume / count)
        return max(likely, key=likely.__getitem__)

    chosen = [likeliest(known, (at + inv.LOOKED_AT) % photos.looked_at)
              for known, at in zip(whole, study.starts, strict=True)]  # fmt: skip
    choices = {
        "64 axes, ridge 0.3": [(64, 0.3)] * len(whole),
        f"the likeliest: {', '.join(f'{axes}, {share}' for axes, share in chosen)}": chosen,
        **{f"{axes} axes": [(axes, 0.3)] * len(whole) for axes in (16, 100)},
        **{f"ridge {share}": [(64, share)] * len(whole) for share in (0.1, 1.0)},
    }
    for name, choice in choices.items():
        yield (
            name,
            [
                dict.fromkeys(study.sets, fewer(known, axes).ignoring([*known.factors], share))
                for known, (axes, share) in zip(whole, choice, strict=True)
            ],
        )


QUESTIONS = {"own": own, "strengths": strengths, "composed": composed, "ridge": ridge}


def main() -> None:
    parser = inv.arguments(__doc__)
    parser.add_argument("--question", nargs="+", default=[*QUESTIONS], choices=QUESTIONS)
    options = parser.parse_args()
    searched = [each.partition("=")[0] for each in options.copies]
    study = Study(*inv.open_sets(options, inv.opened(options).eval()), searched)
    for question in options.question:
        rows, reference = {}, None
        study.queries = {"": study.strength(STRONG)}
        with torch.no_grad():
            for way, draws in QUESTIONS[question](study):
                found = study.found(draws)
                reference = reference or found
                measured = {measure: mean_of(sets) for measure, sets in found.items()}
                rows[way] = {"measured": measured, "ahead": ahead(found, reference)}
                print(question, way, flush=True)
        setting = {"question": question, "encoder": options.encoder, "size": options.size}
        report_setting(RESULT, setting, rows)


if __name__ == "__main__":
    main()
