"""What each method's loss is, from its networks' outputs by the published formula.

Shapes: B images, D dimensions of the embedding, P prototypes, H heads.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from lightly.loss import DINOLoss, NegativeCosineSimilarity, NTXentLoss, SwaVLoss
from tiny import BATCH, build_method, make_views
from torch import Tensor

from mast.methods import BYOL, DINO, LooC, MoCo, MoCoV3, SimCLR, SimSiam, SwAV


def built(name: str, options: dict[str, Any], count: int = 2) -> tuple[Any, tuple[Tensor, ...]]:
    """A method, and the images of a batch; in training mode, so that BatchNorm is the batch's."""
    return build_method(name, {}, options), make_views(0, count).images


def loss_of(method: Any, count: int = 2, progress: float = 0.0) -> float:
    loss: float = method(make_views(0, count), progress)["loss"].item()
    return loss


def unit(embedding_BD: Tensor) -> Tensor:
    return F.normalize(embedding_BD.double(), dim=-1)


@torch.no_grad()
def test_simclr_is_lightlys() -> None:
    method, images = built("simclr", {"temperature": 0.2})
    assert isinstance(method, SimCLR)
    expected = NTXentLoss(0.2)(*(method.embed(image) for image in images))
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-5)


@torch.no_grad()
def test_simsiam_is_lightlys() -> None:
    method, images = built("simsiam", {})
    assert isinstance(method, SimSiam)
    cosine = NegativeCosineSimilarity()
    first, second = (method.embed(image) for image in images)
    expected = cosine(method.predictor(first), second) + cosine(method.predictor(second), first)
    assert loss_of(method) == pytest.approx(expected.item() / 2, rel=1e-5)


@torch.no_grad()
def test_byol_is_the_distance_of_unit_vectors() -> None:
    method, images = built("byol", {})
    assert isinstance(method, BYOL)
    told = [unit(method.predictor(method.embed(image))) for image in images]
    targets = [unit(method.teacher(image)) for image in images]
    expected = (told[0] - targets[1]).square().sum(1) + (told[1] - targets[0]).square().sum(1)
    assert loss_of(method) == pytest.approx(expected.mean().item(), rel=1e-5)


@torch.no_grad()
def test_moco_v2_tells_the_key_from_the_queue() -> None:
    method, images = built("moco_v2", {"queue": 11, "temperature": 0.2})
    assert isinstance(method, MoCo)
    query_BD, key_BD = unit(method.embed(images[0])), unit(method.teacher(images[1]))
    queue_ND = method.queue.key_ND.double().clone()
    logits = torch.cat([(query_BD * key_BD).sum(1, keepdim=True), query_BD @ queue_ND.T], dim=1)
    expected = F.cross_entropy(logits / 0.2, torch.zeros(BATCH).long())
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(method.queue.key_ND[:BATCH].double(), key_BD, rtol=0, atol=1e-5)


@torch.no_grad()
def test_moco_v3_is_its_official_code() -> None:
    """facebookresearch/moco-v3, moco/builder.py: a cross-entropy over the batch, times 2 T."""
    method, images = built("moco_v3", {"temperature": 0.5})
    assert isinstance(method, MoCoV3)
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
    assert isinstance(method, SwAV)
    together = method.projector(method.encoder(torch.cat(images)))
    scores = method.prototypes(together).chunk(2)
    expected = SwaVLoss(temperature=0.1)(list(scores), [])
    assert loss_of(method) == pytest.approx(expected.item(), rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("count", [2, 4])
def test_dino_is_lightlys(count: int) -> None:
    options = {"prototypes": 6, "warmup": 0.5, "temperature": 0.1, "center_momentum": 0.9}
    method, images = built("dino", options, count)
    assert isinstance(method, DINO)
    method.center_P.copy_(torch.linspace(-0.2, 0.2, 6))
    temperature = 0.04 + 0.5 * (0.07 - 0.04)  # a quarter of the run, half of the warm-up
    lightly = DINOLoss(6, student_temp=0.1, center_momentum=0.9)
    lightly.center.copy_(method.center_P.view(1, 1, -1))
    taught = [method.teacher(image) for image in images[:2]]
    scores = [method.prototypes(method.projector(method.encoder(image))) for image in images]
    expected = lightly(taught, scores, teacher_temp=temperature)
    found = loss_of(method, count, progress=0.25)
    assert found == pytest.approx(expected.item(), rel=1e-4)
    torch.testing.assert_close(method.center_P, lightly.center.flatten())


@torch.no_grad()
def test_looc_keeps_in_a_head_what_its_views_share() -> None:
    """LooC, Eq. 2: other views of the image are negatives of the heads that keep something."""
    method, images = built("looc", {"queue": 7, "temperature": 0.2}, 4)
    assert isinstance(method, LooC)
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
