"""What each method's loss is, from its networks' outputs by the published formula.

Shapes: B images, D dimensions of the embedding, P prototypes, H heads.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from lightly.loss import DINOLoss, NegativeCosineSimilarity, NTXentLoss, SwaVLoss, VICRegLoss
from tiny import BATCH, OPERATORS, SIZE, build_method, make_views
from torch import Tensor

from mast.augment import Record, Views
from mast.losses import sinkhorn
from mast.models.patches import pieces_of


def built(name: str, options: dict[str, Any], count: int = 2) -> tuple[Any, tuple[Tensor, ...]]:
    """A method, and the images of a batch; in training mode, so that BatchNorm is the batch's."""
    return build_method(name, {}, options), make_views(0, count).images


def loss_of(method: Any, count: int = 2, progress: float = 0.0) -> float:
    loss: float = method(make_views(0, count), progress)["loss"].item()
    return loss


def of_sides(*sides: int) -> Views:
    """Views of random pixels."""
    generator = torch.Generator().manual_seed(0)
    images = tuple(torch.rand(BATCH, 3, side, side, generator=generator) for side in sides)
    applied_BK = torch.zeros(BATCH, len(OPERATORS), dtype=torch.bool)
    return Views(images, tuple(Record(OPERATORS, applied_BK, {}) for _ in images))


def unit(embedding_BD: Tensor) -> Tensor:
    return F.normalize(embedding_BD.double(), dim=-1)


@torch.no_grad()
def test_simclr_is_lightlys() -> None:
    method, images = built("simclr", {"temperature": 0.2})
    expected = NTXentLoss(0.2)(*(method.embed(image) for image in images))
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-5)


@torch.no_grad()
def test_vicreg_is_lightlys() -> None:
    method, images = built("vicreg", {})
    expected = VICRegLoss()(*(method.embed(image) for image in images))
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-5)


@torch.no_grad()
def test_byol_is_the_distance_of_unit_vectors() -> None:
    method, images = built("byol", {})
    told = [unit(method.predictor(method.embed(image))) for image in images]
    targets = [unit(method.teacher(image)) for image in images]
    expected = (told[0] - targets[1]).square().sum(1) + (told[1] - targets[0]).square().sum(1)
    assert loss_of(method) == pytest.approx(expected.mean().item(), rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("hardness", [0.0, 0.1])
def test_moco_v2_finds_the_key_in_the_queue(hardness: float) -> None:
    """With hardness it is the mean of two contrasts (IFM)."""
    method, images = built("moco_v2", {"queue": 11, "temperature": 0.2, "hardness": hardness})
    query_BD, key_BD = unit(method.embed(images[0])), unit(method.teacher(images[1]))
    positive_B1 = (query_BD * key_BD).sum(1, keepdim=True)
    negative_BN = query_BD @ method.queue.key_ND.double().clone().T
    expected = sum(
        F.cross_entropy(
            torch.cat([positive_B1 - e, negative_BN + e], 1) / 0.2, torch.zeros(BATCH).long()
        ).item()
        for e in (0.0, hardness)
    )
    assert loss_of(method) == pytest.approx(expected / 2, rel=1e-5)
    torch.testing.assert_close(method.queue.key_ND[:BATCH].double(), key_BD, rtol=0, atol=1e-5)


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


@torch.no_grad()
def test_swav_is_lightlys() -> None:
    method, images = built("swav", {"prototypes": 5, "frozen": 0.0})
    together = method.projector(method.encoder(torch.cat(images)))
    scores = method.prototypes(together).chunk(2)
    expected = SwaVLoss(temperature=0.1)(list(scores), [])
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("sides", [(32, 32), (32, 32, 16, 16)])
def test_dino_is_lightlys(sides: tuple[int, ...]) -> None:
    """Views of one size are encoded together, as by DINO's `MultiCropWrapper`."""
    options = {"prototypes": 6, "warmup": 0.5, "temperature": 0.1}
    method, _ = built("dino", options)
    views = of_sides(*sides)
    large, small = (torch.cat(views.images[part]) for part in (slice(2), slice(-2, None)))
    method.center_P.copy_(torch.linspace(-0.2, 0.2, 6))
    temperature = 0.04 + 0.5 * (0.07 - 0.04)  # a quarter of the run, half of the warm-up
    lightly = DINOLoss(6, student_temp=0.1, center_momentum=0.9)
    lightly.center.copy_(method.center_P.view(1, 1, -1))
    sizes = [large] if len(sides) == 2 else [large, small]
    scores = [method.prototypes(method.projector(method.encoder(images))) for images in sizes]
    expected = lightly(
        list(method.teacher(large).chunk(2)),
        [score for both in scores for score in both.chunk(2)],
        teacher_temp=temperature,
    )
    found = method(views, 0.25)["loss"].item()
    assert found == pytest.approx(expected.item(), rel=1e-4)
    torch.testing.assert_close(method.center_P, lightly.center.flatten())


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
    generator = torch.Generator().manual_seed(0)
    images = [torch.rand(BATCH, 3, side, side, generator=generator) for side in sides]
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
    applied_BK = torch.zeros(BATCH, len(OPERATORS), dtype=torch.bool)
    records = tuple(Record(OPERATORS, applied_BK, {}) for _ in images)
    found = method(Views(tuple(images), records), 0.0)
    assert found["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert method.nearest.item() == pytest.approx(mean.item(), rel=1e-5)
    new = torch.stack([local[image, :, image % local.shape[2]] for image in range(BATCH)])
    torch.testing.assert_close(method.words.key_ND[:BATCH].double(), new, rtol=1e-5, atol=1e-5)
    assert torch.equal(method.words.key_ND[BATCH:].double(), words[BATCH:])
    assert 1 <= found["stat/words_of_an_image"] <= found["stat/words_of_the_batch"] <= 20


def test_simsiam_is_lightlys() -> None:
    method, images = built("simsiam", {})
    output = method(make_views(0), 0.0)
    output["loss"].backward()
    found = {name: parameter.grad.clone() for name, parameter in method.named_parameters()}
    method.zero_grad()
    cosine = NegativeCosineSimilarity()
    first, second = (method.embed(image) for image in images)
    told = cosine(method.predictor(first), second.detach())
    expected = (told + cosine(method.predictor(second), first.detach())) / 2
    assert output["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    for name, parameter in method.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


RISES = {"byol": True, "moco_v2": False, "moco_v3": True, "dino": True, "looc": False,
         "clsa": False, "infomin": False, "prcl": False, "obow": True}  # fmt: skip
SIZES = {"byol": {}, "moco_v3": {}, "dino": {"prototypes": 6}, "obow": {"words": 16}}


@torch.no_grad()
@pytest.mark.parametrize("name", RISES)
def test_a_teacher_follows_after_the_step(name: str) -> None:
    """With a momentum of 0.8, of 0.9 in the middle of a run in which it rises."""
    method, _ = built(name, {"momentum": 0.8, **SIZES.get(name, {"queue": 16})})
    student = [*method.encoder.parameters()]
    student += [] if name == "obow" else [*method.projector.parameters()]
    before = [parameter.clone() for parameter in method.teacher.parameters()]
    for parameter in student:
        parameter.add_(1.0)
    method.after_step(0.5)
    pairs = zip(method.teacher.parameters(), before, student, strict=name != "dino")
    for new, old, _ in pairs:  # behind DINO's projector are prototypes
        torch.testing.assert_close(new - old, torch.full_like(old, 0.1 if RISES[name] else 0.2))
    method.begin()
    own, student = method.teacher.encoder.state_dict(), method.encoder.state_dict()
    assert all(torch.equal(own[key], value) for key, value in student.items())


@torch.no_grad()
@pytest.mark.parametrize("progress", [0.1, 0.2])
def test_swav_assigns_a_batch_beside_its_queue(progress: float) -> None:
    options = {"prototypes": 5, "frozen": 0.0, "queue": 12}
    method, images = built("swav", options)
    embeddings = unit(method.projector(method.encoder(torch.cat(images)))).chunk(2)
    prototypes_PD = method.prototypes.weight_PD.double()
    expected = 0.0
    for view, other in ((0, 1), (1, 0)):
        everyone = embeddings[view]
        if progress > 0.15:
            everyone = torch.cat([everyone, method.queues[view].key_ND.double()])
        target_BP = sinkhorn(everyone @ prototypes_PD.T, 0.05, 3)[:BATCH]
        told_BP = F.log_softmax(embeddings[other] @ prototypes_PD.T / 0.1, dim=1)
        expected -= (target_BP * told_BP).sum(dim=1).mean().item() / 2
    assert loss_of(method, progress=progress) == pytest.approx(expected, rel=1e-5)
    for queue, embedding_BD in zip(method.queues, embeddings, strict=True):
        torch.testing.assert_close(queue.key_ND[:BATCH].double(), embedding_BD, rtol=0, atol=1e-5)


@torch.no_grad()
def test_barlow_twins_weighs_redundancy() -> None:
    method, images = built("barlow_twins", {"scale": 0.5})
    first, second = (method.embed(image).double() for image in images)
    spread = [(z - z.mean(0)) / (z.var(0, correction=0) + 1e-5).sqrt() for z in (first, second)]
    correlation_DD = spread[0].T @ spread[1] / BATCH
    diagonal_D = correlation_DD.diagonal()
    off = correlation_DD.square().sum() - diagonal_D.square().sum()
    expected = 0.5 * ((1 - diagonal_D).square().sum() + 0.0051 * off)
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-4)


L, N, R, P = "Linear", "BatchNorm1d", "ReLU", "BatchNorm1d without scale"
NETWORKS = {  # of the official codes
    "simclr": {"projector": [L, N, R, L, N]},
    "moco_v2": {"projector": [L, R, L]},
    "moco_v3": {"projector": [L, N, R, L, P], "predictor": [L, N, R, L]},
    "clsa": {"projector": [L, R, L]},
    "infomin": {"projector": [L, R, L], "of_pieces": [L, R, L], "of_jigsaw": [L]},
    "prcl": {"projector": [L, R, L], "decoder": [L, R, L]},
    "simsiam": {"projector": [L, N, R, L, N, R, L, P], "predictor": [L, N, R, L]},
    "byol": {"projector": [L, N, R, L], "predictor": [L, N, R, L]},
    "barlow_twins": {"projector": [L, N, R, L, N, R, L]},
    "swav": {"projector": [L, N, R, L]},
    "dino": {"projector": [L, "GELU", L, "GELU", L]},
    "obow": {"generator": [L, N, R, L]},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_projectors_and_predictors_are_those_of_the_official_code(name: str) -> None:
    method, _ = built(name, {})
    for part, expected in NETWORKS[name].items():
        leaves = [m for m in method.get_submodule(part).modules() if not list(m.children())]
        kinds = [
            type(leaf).__name__
            + (" without scale" if getattr(leaf, "affine", True) is False else "")
            for leaf in leaves
            if not isinstance(leaf, torch.nn.Identity)
        ]
        assert kinds == expected


def test_simsiams_predictor_keeps_its_rate() -> None:
    method, _ = built("simsiam", {})
    steady = {
        id(p) for group in method.parameter_groups() if group["steady"] for p in group["params"]
    }
    assert steady == {id(p) for p in method.predictor.parameters()}
