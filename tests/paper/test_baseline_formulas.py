"""Losses and views of the paper's methods, by the published formulas and the official codes.

Shapes: B images, D dimensions of the embedding, H heads, N keys.
"""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from conformance import built, follows, layers, loss_of, of_sides, unit
from tiny import BATCH, SIZE, make_views
from torch import Tensor

from mast.augment import PRESETS, Pipeline
from mast.losses import contrast
from paper.methods.ifm import hardened_contrast
from paper.methods.infomin import pieces_of
from paper.methods.vi_simsiam import power_spherical_log_density

pytestmark = pytest.mark.usefixtures("baselines")
L, R = "Linear", "ReLU"


@torch.no_grad()
def test_moco_v3_is_its_official_code() -> None:
    """facebookresearch/moco-v3, moco/builder.py: a cross-entropy over the batch, times 2 T."""
    method, images = built("moco_v3", {"temperature": 0.5})
    queries = [unit(method.predictor(method.embed(image))) for image in images]
    keys = [unit(method.teacher(image)) for image in images]
    expected = sum(
        2 * 0.5 * F.cross_entropy(query_BD @ key_BD.T / 0.5, torch.arange(BATCH))
        for query_BD, key_BD in zip(queries, reversed(keys), strict=True)
    )
    assert loss_of(method) == pytest.approx(float(expected), rel=1e-5)
    norm = "BatchNorm1d without scale"
    assert layers(method.projector) == [L, "BatchNorm1d", R, L, norm]
    assert layers(method.predictor) == [L, "BatchNorm1d", R, L]


def test_hardened_contrast_is_the_mean_with_the_hardest_features() -> None:
    """Of all features moved by epsilon or less, none has a larger loss."""
    generator = torch.Generator().manual_seed(0)
    query_D, key_D, *negatives = F.normalize(
        torch.randn(6, 5, generator=generator, dtype=torch.float64), dim=1
    )
    epsilon, temperature = 0.1, 0.2

    def loss(key_D: Tensor, negatives: list[Tensor]) -> Tensor:
        bank_BN = torch.stack([query_D @ other_D for other_D in negatives])[None]
        return contrast((query_D @ key_D)[None], bank_BN, temperature)

    plain = loss(key_D, negatives)
    hardest = loss(key_D - epsilon * query_D, [other + epsilon * query_D for other in negatives])
    positive_B = (query_D @ key_D)[None]
    negative_BN = torch.stack([query_D @ other for other in negatives])[None]
    found = hardened_contrast(positive_B, negative_BN, temperature, epsilon, 3.0)
    assert found.item() == pytest.approx((plain + 3 * hardest).item() / 4, rel=1e-9)
    for _ in range(200):
        moves = F.normalize(torch.randn(5, 5, generator=generator, dtype=torch.float64), dim=1)
        moved = [other + epsilon * move for other, move in zip(negatives, moves[1:], strict=True)]
        assert loss(key_D + epsilon * moves[0], moved) <= hardest


@torch.no_grad()
def test_looc_keeps_in_a_head_what_its_views_share() -> None:
    """LooC, Eq. 2: other views of the image are negatives of the heads that keep something."""
    method, images = built("looc", {"queue": 7, "temperature": 0.2}, 4)
    query_BHD = unit(method.projector(method.encoder(images[0])))
    keys = [unit(method.teacher(image)) for image in images[1:]]
    queues = [queue.key_ND.double().clone() for queue in method.queues]
    total = 0.0
    for image in range(BATCH):
        for head in range(3):
            query_D = query_BHD[image, head]
            own = [torch.exp(query_D @ key_BHD[image, head] / 0.2).item() for key_BHD in keys]
            queued = torch.exp(queues[head] @ query_D / 0.2).sum().item()
            others = sum(own) if head else own[0]  # the first head has no negatives of the image
            total -= torch.tensor(own[head] / (others + queued)).log().item()
    assert loss_of(method, 4) == pytest.approx(total / BATCH / 3, rel=1e-5)
    for head, queue in enumerate(method.queues):  # the last 7 of 8 keys of this head's own view
        newest = keys[head][-7:, head]
        torch.testing.assert_close(queue.key_ND.double(), newest, rtol=0, atol=1e-5)


@torch.no_grad()
def test_prcl_is_moco_and_the_error_of_what_is_hidden() -> None:
    """Patch by patch; only the encoder, whose BatchNorm is the batch's, sees all images at once."""
    method, (images, _) = built("prcl", {"queue": 11, "hidden": 0.6})
    moco, _ = built("moco_v2", {"queue": 11})
    assert layers(method.projector) == layers(method.decoder) == [L, R, L]
    moco.load_state_dict({name: method.state_dict()[name] for name in moco.state_dict()})
    side, grid = method.side, SIZE // method.side
    order_BL = method.host_inputs(make_views(0), 0.25)["noise_0"].argsort(dim=1)
    lines = [slice(at * side, at * side + side) for at in range(grid)]
    hidden = [
        [(lines[at // grid], lines[at % grid]) for at in order[int(0.4 * grid**2) :]]
        for order in order_BL.tolist()
    ]
    mean, std = method.encoder.mean, method.encoder.std
    damaged = images.clone()
    for image, places in zip(damaged, hidden, strict=True):
        for place in places:
            image[:, *place] = mean
    maps = method.encoder.encode(damaged).features_BLC.unflatten(1, (grid, grid))
    errors = []
    for image, features, places in zip(images, maps, hidden, strict=True):
        for rows, columns in places:
            pixels = ((image[:, rows, columns] - mean) / std).double()
            pixels = (pixels - pixels.mean()) / (pixels.var() + 1e-6).sqrt()
            told = method.decoder(features[rows.start // side, columns.start // side][None])
            told = told.view(side, side, 3).permute(2, 0, 1)
            errors.append((told - pixels).square().mean().item())
    error, contrast = sum(errors) / len(errors), loss_of(moco)
    output = method(make_views(0), 0.25)
    assert output["term/pixels"].item() == pytest.approx(error, rel=1e-4)
    assert output["term/contrast"].item() == pytest.approx(contrast, rel=1e-5)
    assert output["loss"].item() == pytest.approx(contrast + error, rel=1e-5)


@pytest.mark.parametrize("size", [255, 32])
def test_pieces_are_cut_as_in_the_official_code(size: int) -> None:
    """HobbitLong/PyContrast, datasets/util.py, `JigsawCrop`: 64 pixels of cells of 85."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(5, 3, size, size, generator=generator)
    place = torch.rand(5, 9, 2, generator=generator)
    cell, side = size // 3, {255: 64, 32: 8}[size]
    pieces = pieces_of(images, place)
    assert pieces.shape == (5, 9, 3, side, side)
    for image, own, cut in zip(images, place, pieces, strict=True):
        for at in range(9):
            y, x = (int(share * (cell - side + 1)) for share in own[at])
            y, x = y + at // 3 * cell, x + at % 3 * cell
            assert torch.equal(cut[at], image[:, y : y + side, x : x + side])


@torch.no_grad()
def test_infomin_is_its_official_code() -> None:
    """HobbitLong/PyContrast: `RGBMultiHeads`, `JigsawHead`, `RGBMoCo` and beta."""
    options = {"queue": 11, "temperature": 0.3, "jigsaw": 0.4}
    method, (query, key, whole) = built("infomin", options, 3)
    assert layers(method.projector) == layers(method.of_pieces) == [L, R, L]
    queue_ND, key_BD = method.queue.key_ND.double().clone(), unit(method.teacher(key))
    noise = method.host_inputs(make_views(0, 3), 0.25)["noise_0"]
    pieces = pieces_of(whole, noise[:, :18].view(BATCH, 9, 2))
    told = method.of_pieces(method.encoder(pieces.reshape(-1, *pieces.shape[2:])))
    orders = [noise[image, 18:].sort().indices for image in range(BATCH)]
    rows = torch.cat([order + 9 * image for image, order in enumerate(orders)])
    solved = unit(method.of_jigsaw(told[rows].view(BATCH, -1)))
    losses = []
    for query_BD in (unit(method.projector(method.encoder(query))), solved):
        logits = torch.cat([(query_BD * key_BD).sum(1, keepdim=True), query_BD @ queue_ND.T], dim=1)
        losses.append(F.cross_entropy(logits / 0.3, torch.zeros(BATCH).long()).item())
    output = method(make_views(0, 3), 0.25)
    assert output["term/contrast"].item() == pytest.approx(0.6 * losses[0], rel=1e-5)
    assert output["term/jigsaw"].item() == pytest.approx(0.4 * losses[1], rel=1e-5)
    assert output["loss"].item() == pytest.approx(0.6 * losses[0] + 0.4 * losses[1], rel=1e-5)
    torch.testing.assert_close(method.queue.key_ND[:BATCH].double(), key_BD, rtol=0, atol=1e-5)


def test_clsa_is_its_official_code() -> None:
    """maple-research-lab/CLSA, model/CLSA.py and training/train.py: one weak view, one strong."""
    options = {"queue": 11, "temperature": 0.2}
    method, (query, key, strong) = built("clsa", options, 3)
    assert layers(method.projector) == [L, R, L]
    keys = torch.cat([unit(method.teacher(key)), method.queue.key_ND.double().clone()])
    logits, logits_strong = (
        torch.einsum("nc,kc->nk", unit(method.embed(image)), keys) / 0.2
        for image in (query, strong)
    )
    label = logits.clone().detach().softmax(dim=1)
    contrast = F.cross_entropy(logits, torch.arange(BATCH))
    told = -(logits_strong.softmax(dim=1).log() * label).sum(dim=1).mean()
    (contrast + told).backward()
    expected = {name: p.grad.clone() for name, p in method.named_parameters() if p.requires_grad}
    method.zero_grad()
    output = method(make_views(0, 3), 0.0)
    assert output["term/contrast"].item() == pytest.approx(contrast.item(), rel=1e-5)
    assert output["term/strong"].item() == pytest.approx(told.item(), rel=1e-5)
    output["loss"].backward()
    for name, gradient in expected.items():
        own = method.get_parameter(name).grad
        torch.testing.assert_close(own, gradient, rtol=1e-4, atol=1e-6, msg=name)
    torch.testing.assert_close(method.queue.key_ND[:BATCH].double(), keys[:BATCH])


@torch.no_grad()
@pytest.mark.parametrize("sides", [(32, 32), (96, 48, 48, 32)], ids=["2 x 2", "6 x 6, multi-crop"])
def test_obow_is_its_official_code(sides: tuple[int, ...]) -> None:
    """valeoai/obow, obow/builder_obow.py: `BoWExtractor`, `BoWPredictor` and `_bow_loss`.

    Its divergence is the cross-entropy less the entropy of the bags, which has no gradient.
    """
    method, _ = built("obow", {"words": 20, "sharpness": 10.0, "scale": 5.0})
    assert layers(method.generator) == [L, "BatchNorm1d", R, L]
    images = of_sides(*sides).images
    words = method.words.key_ND.double().clone()
    features = method.teacher.encoder.encode(images[0]).features_BLC.double().transpose(1, 2)
    features = features.unflatten(2, (sides[0] // 16, -1))
    local = features.flatten(2)
    if sides[0] == 96:
        features = features[:, :, 1:-1, 1:-1].contiguous()
        local = F.avg_pool2d(features, kernel_size=3, stride=1, padding=0).flatten(2)
    bias, weight = words.pow(2).sum(1), -2 * words.unsqueeze(2).unsqueeze(3)
    dist = features.pow(2).sum(1, keepdim=True) + F.conv2d(features, weight, bias)
    mean = 0.5 * 0.99 + dist.min(dim=1).values.mean() * 0.01
    codes = F.softmax(-10.0 / mean * dist, dim=1)
    bow = F.normalize(codes.amax(dim=(2, 3)), p=1, dim=1)
    weight = unit(method.generator(F.normalize(words, dim=1).float()))
    expected = 0.0
    for side in dict.fromkeys(sides[1:]):
        crops = torch.cat([image for image in images[1:] if image.shape[3] == side])
        told = torch.mm(method.encoder(crops).double() * 5.0, weight.t())
        target = bow.repeat(len(crops) // BATCH, 1)
        divergence = F.kl_div(F.log_softmax(told, dim=1), target, reduction="batchmean")
        expected += (divergence + torch.special.entr(target).sum(dim=1).mean()).item()
    found = method(of_sides(*sides), 0.0)
    assert found["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert method.nearest.item() == pytest.approx(mean.item(), rel=1e-5)
    new = torch.stack([local[image, :, image % local.shape[2]] for image in range(BATCH)])
    torch.testing.assert_close(method.words.key_ND[:BATCH].double(), new, rtol=1e-5, atol=1e-5)
    assert torch.equal(method.words.key_ND[BATCH:].double(), words[BATCH:])
    assert 1 <= found["stat/words_of_an_image"] <= found["stat/words_of_the_batch"] <= 20


RISES = {
    "moco_v3": True,
    "ifm": False,
    "looc": False,
    "clsa": False,
    "infomin": False,
    "prcl": False,
    "obow": True,
}


@pytest.mark.parametrize("name", RISES)
def test_a_teacher_follows_after_the_step(name: str) -> None:
    words = name == "obow"
    parts = ("encoder",) if words else ("encoder", "projector")
    sizes = {} if name == "moco_v3" else {"words" if words else "queue": 16}
    follows(name, sizes, RISES[name], *parts)


@pytest.mark.parametrize("concentration", [0.0, 0.7, 20.0])
@pytest.mark.parametrize("dim", [2, 3, 6])
def test_it_integrates_to_one_and_has_its_mean(dim: int, concentration: float) -> None:
    """Over the cosine t, whose density on the sphere is (1 - t^2)^((d - 3) / 2)."""
    angle = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
    direction = torch.zeros(len(angle), dim, dtype=torch.float64)
    direction[:, 0], direction[:, 1] = angle.cos(), angle.sin()
    mean = torch.zeros_like(direction)
    mean[:, 0] = 1.0
    kappa = torch.full_like(angle, concentration)
    density = power_spherical_log_density(direction, mean, kappa).exp()
    ring = 2 * math.pi ** ((dim - 1) / 2) / math.gamma((dim - 1) / 2)  # area of the d-2 sphere
    weight = density * ring * angle.sin() ** (dim - 2)
    assert torch.trapezoid(weight, angle).item() == pytest.approx(1.0, rel=1e-4)
    expected = concentration / (concentration + dim - 1)  # (a - b) / (a + b) of the paper
    assert torch.trapezoid(weight * angle.cos(), angle).item() == pytest.approx(expected, abs=1e-4)


def test_opposite_directions_are_finite_with_their_gradient() -> None:
    mean = F.normalize(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    mean.requires_grad_()
    kappa = torch.full((4,), 50.0, requires_grad=True)
    power_spherical_log_density(-mean.detach(), mean, kappa).sum().backward()
    assert mean.grad is not None
    assert kappa.grad is not None
    assert bool(mean.grad.isfinite().all() and kappa.grad.isfinite().all())


# --------------------------------------------------------------------------------------- views


def rand_augment(draws: int, among: int) -> object:
    """How often the first operator acts where so many are drawn, and each acts with a coin."""
    torch.manual_seed(0)
    drawn = torch.randint(among, (500_000, draws))
    acts = torch.rand(drawn.shape) < 0.5
    return pytest.approx(((drawn == 0) & acts).any(dim=1).double().mean().item(), abs=2e-3)


def test_infomin_draws_two_of_fifteen_at_magnitude_ten():
    """HobbitLong/PyContrast, datasets/RandAugment.py: magnitudes of `rand-n2-m10-mstd0.5`."""
    view = Pipeline(PRESETS["infomin"], 224).operators[0]
    drawn = [name for name in view if name not in PRESETS["mast5"].operators]
    chance = rand_augment(draws=2, among=15)
    assert len(drawn) == 10
    assert all(view[name].probability == chance for name in drawn if name != "solarize")
    # what it draws: at its magnitude in half of all cases, as it is clipped to that
    torch.manual_seed(0)
    level = (10 + 0.5 * torch.randn(9999).double()).clamp(max=10)
    factor, bits = level / 10 * 1.8 + 0.1, (level / 10 * 4).int()
    weakest, strongest = factor.quantile(0.1).item(), factor.max().item()
    assert view["sharpness"].factor == pytest.approx((weakest, strongest), abs=0.02)
    assert view["posterize"].bits == (bits.min(), bits.max())
    threshold = (level / 10 * 256).int() / 256
    some = threshold[threshold < 1]
    assert view["solarize"].probability / len(some) * 9999 == pytest.approx(1 / 15, abs=0.005)
    assert sum(view["solarize"].threshold) / 2 == pytest.approx(some.mean().item(), abs=0.01)


def test_clsa_draws_five_of_fourteen_for_its_strong_view():
    """maple-research-lab/CLSA, data_processing/RandAugment.py: `RandAugment(n=5, m=10)`."""
    *weak, strong = Pipeline(PRESETS["clsa"], 224).operators
    own = [name for name in strong if name not in PRESETS["mast5"].operators]
    moco = Pipeline(PRESETS["moco"], 224).operators[0]
    for view in weak:
        assert all(view[name].probability == 0 for name in own)
        assert {name: view[name] for name in moco} == moco
    chance = rand_augment(draws=5, among=14)
    assert all(strong[name].probability == chance for name in own)
    blur, size = strong["gaussian_blur"], moco["gaussian_blur"]
    assert blur.magnitudes()["sigma"] == pytest.approx(size.magnitudes()["sigma"])
    assert blur.taps == size.taps
    levels = range(1, 10)  # np.random.randint(1, 10)
    assert strong["rotate"].angle == pytest.approx((-30 * 9 / 10, 30 * 9 / 10))
    factors = [level * 0.9 / 10 + 0.05 for level in levels]
    assert strong["sharpness"].factor == pytest.approx((min(factors), max(factors)))
    bits = [int(level * 4 / 10) + 4 for level in levels]
    assert strong["posterize"].bits == (min(bits), max(bits))
    thresholds = [(256 - int(level * 256 / 10)) / 256 for level in levels]
    bounds = min(thresholds), max(thresholds)
    assert strong["solarize"].threshold == pytest.approx(bounds, abs=0.01)
