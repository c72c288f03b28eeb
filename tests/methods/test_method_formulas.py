"""What each method's loss is, from its networks' outputs by the published formula.

Shapes: B images, D dimensions of the embedding, P prototypes, H heads.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from conformance import built, follows, layers, loss_of, of_sides, unit
from lightly.loss import DINOLoss, NegativeCosineSimilarity, NTXentLoss, SwaVLoss, VICRegLoss
from lightly.loss.lejepa_loss import LeJEPALoss
from lightly.loss.visreg_loss import VISRegLoss
from tiny import BATCH, make_views


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
def test_moco_v2_finds_the_key_in_the_queue() -> None:
    method, images = built("moco_v2", {"queue": 11, "temperature": 0.2})
    query_BD, key_BD = unit(method.embed(images[0])), unit(method.teacher(images[1]))
    positive_B1 = (query_BD * key_BD).sum(1, keepdim=True)
    negative_BN = query_BD @ method.queue.key_ND.double().clone().T
    logits = torch.cat([positive_B1, negative_BN], 1) / 0.2
    expected = F.cross_entropy(logits, torch.zeros(BATCH).long()).item()
    assert loss_of(method) == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(method.queue.key_ND[:BATCH].double(), key_BD, rtol=0, atol=1e-5)


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


RISES = {"byol": True, "moco_v2": False, "dino": True}
SIZES: dict[str, dict[str, Any]] = {"moco_v2": {"queue": 16}, "dino": {"prototypes": 6}}


@pytest.mark.parametrize("name", RISES)
def test_a_teacher_follows_after_the_step(name: str) -> None:
    follows(name, SIZES.get(name, {}), RISES[name], "encoder", "projector")


@torch.no_grad()
def test_barlow_twins_weighs_redundancy() -> None:
    method, images = built("barlow_twins", {})
    first, second = (method.embed(image).double() for image in images)
    spread = [(z - z.mean(0)) / (z.var(0, correction=0) + 1e-5).sqrt() for z in (first, second)]
    correlation_DD = spread[0].T @ spread[1] / BATCH
    diagonal_D = correlation_DD.diagonal()
    off = correlation_DD.square().sum() - diagonal_D.square().sum()
    expected = 0.024 * ((1 - diagonal_D).square().sum() + 0.0051 * off)
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize(("name", "sides"), [("lejepa", (32, 32, 16)), ("visreg", (32, 32))])
def test_lejepa_and_visreg_are_lightlys(
    name: str, sides: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views of one size are encoded together, all projected together."""
    method, _ = built(name, {"directions": 7, "regularizer_weight": 0.3})
    views = of_sides(*sides)
    direction_DS = method.host_inputs(views, 0.0)["direction_DS"]
    monkeypatch.setattr("torch.randn", lambda *_, **__: direction_DS.clone())
    theirs = LeJEPALoss(0.3) if name == "lejepa" else VISRegLoss(0.3)
    groups = [views.images[:2], views.images[2:]]
    encoded = torch.cat([method.encoder(torch.cat(group)) for group in groups if group])
    every = method.projector(encoded).unflatten(0, (len(sides), -1))
    expected = theirs(global_proj=every[:2], local_proj=every[2:])
    wanted = torch.autograd.grad(expected, [*method.projector.parameters()])
    monkeypatch.undo()
    loss = method(views, 0.0)["loss"]
    found = torch.autograd.grad(loss, [*method.projector.parameters()])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)


L, N, R, P = "Linear", "BatchNorm1d", "ReLU", "BatchNorm1d without scale"
NETWORKS = {  # of the official codes
    "simclr": {"projector": [L, N, R, L, N]},
    "moco_v2": {"projector": [L, R, L]},
    "simsiam": {"projector": [L, N, R, L, N, R, L, P], "predictor": [L, N, R, L]},
    "byol": {"projector": [L, N, R, L], "predictor": [L, N, R, L]},
    "barlow_twins": {"projector": [L, N, R, L, N, R, L]},
    "lejepa": {"projector": [L, N, R, L, N, R, L]},
    "swav": {"projector": [L, N, R, L]},
    "dino": {"projector": [L, "GELU", L, "GELU", L]},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_projectors_and_predictors_are_those_of_the_official_code(name: str) -> None:
    method, _ = built(name, {})
    for part, expected in NETWORKS[name].items():
        assert layers(method.get_submodule(part)) == expected


def test_simsiams_predictor_keeps_its_rate() -> None:
    method, _ = built("simsiam", {})
    steady = {
        id(p) for group in method.parameter_groups() if group["steady"] for p in group["params"]
    }
    assert steady == {id(p) for p in method.predictor.parameters()}
