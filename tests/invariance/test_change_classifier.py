"""What was changed is predicted from a difference of features, on known features."""

import torch
from torch import Tensor

from mast.invariance.change_classifier import NONE, ChangeClassifier, ChangeFeatures
from mast.invariance.subspaces import Subspaces

WIDTHS = (8, 12)
MOVED = {"color_jitter": slice(0, 3), "grayscale": slice(2, 4), "rotate": slice(9, 14)}


def images_and_copies(n: int, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Features of images, and of copies, each moved along some of the axes."""
    generator = torch.Generator().manual_seed(seed)
    features_NF = torch.randn(n, 20, generator=generator)
    changed = {}
    for name, axes in MOVED.items():
        moved_NF = 0.02 * torch.randn(n, 20, generator=generator)
        moved_NF[:, axes] += torch.randn(n, len(range(20)[axes]), generator=generator)
        changed[name] = features_NF + moved_NF
    return features_NF, changed


def test_properties_of_new_images_are_predicted() -> None:
    features_NF, changed = images_and_copies(120, 0)
    classifier = ChangeClassifier.learn(features_NF, changed, WIDTHS, seed=0)
    assert set(classifier.names) == {*MOVED, NONE}
    energies = ChangeFeatures(Subspaces.of(features_NF, changed, WIDTHS), WIDTHS)
    new_NF, copies = images_and_copies(200, 1)
    pairs = {
        "color": torch.cat([copies[name] - new_NF for name in ("color_jitter", "grayscale")]),
        "orientation": copies["rotate"] - new_NF,
        NONE: new_NF.roll(1, dims=0) - new_NF,
    }
    for expected, difference_PF in pairs.items():
        for turned_PF in (difference_PF, -difference_PF):  # whichever of the two was first
            named = classifier.properties(energies(turned_PF))
            assert sum(name == expected for name, _ in named) > 0.95 * len(named), expected
        assert all(0.25 <= probability <= 1 for _, probability in named)
    # Of one operator there are two classes.
    alone = ChangeClassifier.learn(features_NF, {"rotate": changed["rotate"]}, WIDTHS, seed=0)
    known = ChangeFeatures(Subspaces.of(features_NF, {"rotate": changed["rotate"]}, WIDTHS), WIDTHS)
    assert alone.weight_CE.shape[0] == 2
    named = [name for name, _ in alone.properties(known(pairs["orientation"]))]
    assert named.count("orientation") > 0.95 * len(named)
    # No difference at all is finite, and something.
    assert len(classifier.properties(energies(torch.zeros(1, 20)))) == 1
