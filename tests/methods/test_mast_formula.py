"""The losses of MAST and MAST-C, term by term, against plain float64 evaluations.

Shapes: B batch, D embedding dimensions, K operators.
"""

from typing import Any

import pytest
import torch
from tiny import BATCH, DIM, OPERATORS, build_method, make_views
from torch import Tensor

from mast.augment import difference
from mast.methods import Mast, MastC
from mast.methods.parts import PredictionConfig as Heads


def build(**options: Any) -> Mast:
    """In training mode, so that each view is normalised by its own batch."""
    method = build_method("mast", {}, options)
    assert isinstance(method, Mast)
    return method


def build_c(**options: Any) -> MastC:
    """MAST-C over a distance, with heads on block and representation."""
    own = {"compare": "distance", "predict_from": ("block", "representation"), **options}
    method = build_method("mast_c", {}, own)
    assert isinstance(method, MastC)
    return method


def vicreg_terms(first_BD: Tensor, second_BD: Tensor) -> dict[str, float]:
    """Variance and covariance of both views, float64, with the D x D matrix."""
    spread = cross = 0.0
    for z_BD in (first_BD, second_BD):
        covariance_DD = torch.cov(z_BD.T)
        spread += (1 - (covariance_DD.diagonal() + 1e-4).sqrt()).clamp(min=0).mean().item() / 2
        cross += (covariance_DD - covariance_DD.diagonal().diag()).square().sum().item() / DIM
    return {"variance": 25 * spread, "covariance": cross}


@torch.no_grad()
def test_as_printed_it_is_eq_7() -> None:
    method = build(printed=True)
    batch = make_views(0)
    (first_BD, first_cov_BD), (second_BD, second_cov_BD) = (
        [x.double() for x in method.projector(method.encoder.encode(images))]
        for images in batch.images
    )
    masks_DK = method.masks.logits_DK.double().clamp(min=0)
    squared_BD = (first_BD - second_BD).square()
    count = len(OPERATORS)
    masked = kl = 0.0
    for i in range(BATCH):
        for k in range(count):
            if batch.records[0].applied_BK[i, k] or batch.records[1].applied_BK[i, k]:
                m_D = masks_DK[:, k]
                trace = ((first_cov_BD[i] + second_cov_BD[i]) * m_D).sum()
                masked += (2 * (squared_BD[i] * m_D**2).sum() / trace).item() / (BATCH * count)
        s_D, t_D = first_cov_BD[i], second_cov_BD[i]
        # Both directions of Eq. 5, with the constant that Eq. 6 drops.
        forward = (t_D / s_D).log() + (s_D + squared_BD[i]) / t_D - 1
        backward = (s_D / t_D).log() + (t_D + squared_BD[i]) / s_D - 1
        kl += (forward + backward).mean().item() / 2 / BATCH
    expected = vicreg_terms(first_BD, second_BD)
    expected |= {"masked": 25 * masked, "kl": 25 * kl}
    expected["sparsity"] = 600 * masks_DK.mean().item()
    output = method(batch, 0.0)
    for name, value in expected.items():
        assert output[f"term/{name}"].item() == pytest.approx(value, rel=1e-4), name
    assert output["loss"].item() == pytest.approx(sum(expected.values()), rel=1e-4)


@pytest.mark.parametrize("uncertain", [False, True])
@torch.no_grad()
def test_what_trains_is_its_formula(uncertain: bool) -> None:
    method = build(uncertainty=uncertain)
    batch = make_views(0)
    first, second = (method.projector(method.encoder.encode(images)) for images in batch.images)
    first_BD, second_BD = first.mean_BD.double(), second.mean_BD.double()
    squared_BD = (first_BD - second_BD).square()
    masks_DK = method.masks.logits_DK.double().clamp(min=0)
    masks_DK = masks_DK / masks_DK.square().mean(dim=0).sqrt()
    distances, uncertainties = [], []
    for i, active_K in enumerate(batch.active_BK):
        if active_K.any():
            weight_D = masks_DK[:, active_K].square().prod(dim=1)
            weight_D /= weight_D.sum()
            distances.append((weight_D * squared_BD[i]).sum())
            if uncertain:
                both_D = first.covariance_BD[i].double() + second.covariance_BD[i].double()
                uncertainties.append((weight_D * both_D).sum() / 2)
            else:
                uncertainties.append(torch.ones((), dtype=torch.float64))
    relative = torch.stack(uncertainties) / torch.stack(uncertainties).mean()
    masked = (torch.stack(distances) / relative).sum().item() / BATCH
    expected = vicreg_terms(first_BD, second_BD)
    expected |= {"masked": 10 * masked, "sparsity": -2 * masks_DK.mean().item()}
    output = method(batch, 0.0)
    for name, value in expected.items():
        assert output[f"term/{name}"].item() == pytest.approx(value, rel=1e-4), name
    assert output["loss"].item() == pytest.approx(sum(expected.values()), rel=1e-4)


@pytest.mark.parametrize("method", [build(), build(printed=True), build_c()])
@torch.no_grad()
def test_a_pair_on_which_nothing_acted_has_distance_0(method: Mast | MastC) -> None:
    """It trains no subspace; no operator asks it for an invariance."""
    batch = make_views(0)
    for record in batch.records:
        record.applied_BK[:] = False
    output = method(batch, 0.0)
    assert output["term/masked"] == 0
    assert output["stat/unmasked_distance"] > 0


@torch.no_grad()
def test_distance_in_subspaces_is_its_formula() -> None:
    """Weighted distance outside the blocks of what acted; what block and encoder leave untold."""
    properties = ("color", "orientation")
    method = build_c(
        exempt=properties, predicted=properties, exempt_share=0.25, prediction=Heads(weight=3.0)
    )
    batch = make_views(0)
    first_BD, second_BD = (method.projector(method.encoder(images)) for images in batch.images)
    squared_BD = (first_BD.double() - second_BD.double()).square()
    color_D, orientation_D = torch.zeros(2, DIM)
    color_D[: DIM // 4] = 1
    orientation_D[DIM // 4 : DIM // 2] = 1
    exempt_DK = torch.stack([0 * color_D, orientation_D, color_D], dim=1)  # crop, flip, jitter
    masked = 0.0
    for i, active_K in enumerate(batch.active_BK):
        if active_K.any():
            kept_D = (1 - exempt_DK)[:, active_K].prod(dim=1)
            masked += (kept_D * squared_BD[i]).sum().item() / kept_D.sum().item() / BATCH
    expected = vicreg_terms(first_BD.double(), second_BD.double())
    expected |= {"masked": 10 * masked}
    representations = [method.encoder(images) for images in batch.images]
    blocks = {"horizontal_flip": orientation_D, "color_jitter": color_D}
    for source, prediction in method.predictions.items():
        assert list(prediction.heads) == list(blocks)
        untold = 0.0
        for name, block_D in blocks.items():
            in_block = [first_BD * block_D, second_BD * block_D]
            seen = in_block if source == "block" else representations
            told_BT = prediction.heads[name](torch.cat(seen, dim=1)).double()
            target_BT = difference(batch, name).double()
            spread_T = (target_BT.var(dim=0, correction=0) + 1e-6).sqrt()
            error_BT = told_BT - (target_BT - target_BT.mean(dim=0)) / spread_T
            untold += error_BT.square().mean().item()
        expected[f"prediction_by_{source}"] = 3 * untold
    assert expected.keys() >= {"prediction_by_block", "prediction_by_representation"}
    output = method(batch, 0.0)
    for name, value in expected.items():
        assert output[f"term/{name}"].item() == pytest.approx(value, rel=1e-4), name
    assert output["loss"].item() == pytest.approx(sum(expected.values()), rel=1e-4)


def test_a_prediction_from_a_block_moves_the_block_alone() -> None:
    """The prediction's gradient reaches the embedding in the exempt dimensions and nowhere else."""
    method = build_c(exempt_share=0.25)
    prediction = method.predictions["block"]
    first_BD, second_BD = (torch.randn(BATCH, DIM, requires_grad=True) for _ in range(2))
    part_DP = (1 - method.masks())[:, method.column_P]
    inputs = prediction.host_inputs(make_views(0), 0.0)
    sum(prediction((first_BD, second_BD), inputs, part_DP).values()).backward()
    for embedding_BD in (first_BD, second_BD):
        moved_D = embedding_BD.grad.abs().sum(dim=0) > 0
        assert moved_D[: DIM // 4].all()
        assert not moved_D[DIM // 4 :].any()


@pytest.mark.parametrize(
    ("predicted", "block", "representation"),
    [
        (("color",), ["color_jitter"], ["color_jitter"]),
        (("color", "position"), ["color_jitter"], ["random_resized_crop", "color_jitter"]),
        (("position",), None, ["random_resized_crop"]),
    ],
)
def test_properties_that_are_not_exempt_are_predicted_from_the_representation(
    predicted: tuple[str, ...], block: list[str] | None, representation: list[str]
) -> None:
    method = build_c(exempt=("color",), predicted=predicted)
    heads = {source: [*part.heads] for source, part in method.predictions.items()}
    expected = {"block": block, "representation": representation}
    assert heads == {source: names for source, names in expected.items() if names}
    method(make_views(0), 0.0)["loss"].backward()
    assert all(own.grad is not None for own in method.predictions.parameters())


def test_relative_masks_compare_operators_within_a_dimension() -> None:
    """The network's gradient is that of fixed masks; the masks' is of relative differences."""
    batch, gradients = make_views(0), []
    for fixed in (True, False):
        method = build(uncertainty=False, sparsity_weight=0.0)
        method.masks.requires_grad_(not fixed)
        method(batch, 0.0)["loss"].backward()
        gradients.append([p.grad for p in method.encoder.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)

    with torch.no_grad():
        first_BD, second_BD = (
            method.projector(method.encoder.encode(images)).mean_BD.double()
            for images in batch.images
        )
        squared_BD = (first_BD - second_BD).square()
        relative_BD = squared_BD / squared_BD.mean(dim=0)
    logits_DK = method.masks.logits_DK.detach().double().requires_grad_()
    masks_DK = logits_DK.clamp(min=0)
    masks_DK = masks_DK / masks_DK.square().mean(dim=0).sqrt()
    total = torch.zeros((), dtype=torch.float64)
    for i, active_K in enumerate(batch.active_BK):
        if active_K.any():
            weight_D = masks_DK[:, active_K].square().prod(dim=1)
            total = total + (weight_D * relative_BD[i]).sum() / weight_D.sum()
    (expected_DK,) = torch.autograd.grad(10 * total / BATCH, logits_DK)
    found_DK = method.masks.logits_DK.grad
    torch.testing.assert_close(found_DK.double(), expected_DK, rtol=2e-3, atol=2e-5)


@torch.no_grad()
def test_no_masks_is_one_term_for_every_pair() -> None:
    # Table 6, "uncertainty only": 10 * 2 |difference|^2 / (tr + tr'), whatever was applied.
    method = build(masks="none")
    batch = make_views(0)
    (first_BD, first_cov_BD), (second_BD, second_cov_BD) = (
        method.projector(method.encoder.encode(images)) for images in batch.images
    )
    trace_B = (first_cov_BD + second_cov_BD).sum(1)
    expected_B = 2 * (first_BD - second_BD).square().sum(1) / (trace_B / trace_B.mean() * 2 * DIM)
    assert method(batch, 0.0)["term/masked"].item() == pytest.approx(
        10 * expected_B.mean().item(), rel=1e-4
    )
