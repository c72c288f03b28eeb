"""What follows, remembers and assigns: teachers, queues, prototypes.

Shapes: B images, D dimensions.
"""

import pytest
import torch
from tiny import BATCH, ENCODER, SIZE, make_views
from torch import nn

from mast.methods.parts import Noise, Prototypes, Queue, Teacher
from mast.models import Encoder


def test_a_teacher_normalises_by_the_batch_and_drops_nothing() -> None:
    encoder = Encoder(ENCODER, SIZE)
    projector = nn.Sequential(nn.Dropout(0.9), nn.Linear(encoder.dim, 4))
    teacher = Teacher(encoder, projector, 0.9).train()
    images_BCHW = torch.rand(4, 3, SIZE, SIZE)
    outputs = [teacher(images_BCHW) for _ in range(2)]
    assert torch.equal(*outputs)
    assert not outputs[0].requires_grad
    assert not torch.allclose(outputs[0], teacher.eval()(images_BCHW))


@pytest.mark.parametrize("length", [5, 6])
def test_a_queue_holds_the_last_of_them(length: int) -> None:
    queue = Queue(length, 2, seed=0)
    torch.testing.assert_close(queue.key_ND.norm(dim=1), torch.ones(length))
    batches = torch.arange(24.0).view(4, 3, 2)
    for batch in batches:
        queue.push(batch)
    newest = {tuple(key) for key in batches.flatten(0, 1)[-length:].tolist()}
    assert {tuple(key) for key in queue.key_ND.tolist()} == newest
    queue.push(torch.arange(40.0).view(20, 2))  # more than fit
    assert sorted(queue.key_ND[:, 0].tolist()) == [2.0 * at for at in range(20 - length, 20)]


def test_prototypes_are_directions() -> None:
    torch.manual_seed(0)
    prototypes = Prototypes(3, 5)
    embedding_BD = torch.randn(2, 3)
    cosine_BP = prototypes(embedding_BD)
    expected = torch.cosine_similarity(embedding_BD[:, None], prototypes.weight_PD[None], dim=2)
    torch.testing.assert_close(cosine_BP, expected)
    with torch.no_grad():
        prototypes.weight_PD.mul_(3.0)
    prototypes.after_step(0.5)
    torch.testing.assert_close(prototypes.weight_PD.norm(dim=1), torch.ones(5))


def test_noise_changes_with_step_view_and_seed_alone() -> None:
    views, noise = make_views(0), Noise(0, 16)
    first = noise.host_inputs(views, 0.5)
    assert first["noise_0"].shape == (BATCH, 16)
    again = Noise(0, 16).host_inputs(views, 0.5)
    assert torch.equal(first["noise_0"], again["noise_0"])
    others = [noise.host_inputs(views, 0.6), Noise(1, 16).host_inputs(views, 0.5)]
    for changed in (first["noise_1"], *(inputs["noise_0"] for inputs in others)):
        assert not torch.equal(first["noise_0"], changed)
    assert not torch.equal(first["noise_0"][0], first["noise_0"][1])
