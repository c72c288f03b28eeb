"""What the page of photos knows of features, against the spaces themselves."""

import torch
from searched import searched
from torch.nn.functional import normalize

from mast.search.reduced import reduced


def test_it_finds_what_the_spaces_find_and_knows_how_often() -> None:
    features_NF, subspaces = searched(200)
    page = reduced(features_NF, subspaces)
    assert [*page.properties] == [*subspaces.properties]
    assert 0.97 < page.agreement < 1
    few = reduced(features_NF, subspaces, axes=16)
    assert few.agreement < 0.85
    level_NF = subspaces.ignoring(()).forward(features_NF)
    both = subspaces.ignoring(["color_jitter", "grayscale", "rotate"])
    at = sum(2**i for i, name in enumerate(page.properties) if name != "focus")
    torch.testing.assert_close(page.lengths[at], both.moved(level_NF).norm(dim=1))
    along_RN = torch.cat([each.restored for each in page.features])
    matched = subspaces.matching(["rotate"])
    map_JR = page.maps[2 ** [*page.properties].index("orientation") - 1].restored
    cosine_NN, exact_NN = (
        (unit_NJ := normalize(moved_NJ, dim=1)) @ unit_NJ.T
        for moved_NJ in ((map_JR @ along_RN).T, matched.moved(level_NF))
    )
    torch.testing.assert_close(cosine_NN, exact_NN, atol=0.05, rtol=0)


def test_the_map_has_the_leading_axes_and_turns_little() -> None:
    features_NF, subspaces = searched(1200)
    page = reduced(features_NF, subspaces)
    assert page.every == 2
    assert len(page.places) == 2 * 2 ** len(page.properties) - 1
    for place_N2 in page.places:
        assert place_N2.shape == (600, 2)
        assert float(place_N2.min()) == 0 and float(place_N2.max()) == 1  # noqa: PT018
    unit_NF = normalize(subspaces.ignoring(()).forward(features_NF[::2]), dim=1)
    centered_NF = unit_NF - unit_NF.mean(dim=0)
    exact_N2 = centered_NF @ torch.linalg.svd(centered_NF, full_matrices=False).Vh[:2].T
    for axis in range(2):
        both_2N = torch.stack([exact_N2[:, axis], page.places[0][:, axis]])
        assert abs(torch.corrcoef(both_2N)[0, 1]) > 0.98
