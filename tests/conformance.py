"""What every method keeps of the contract of `Method`, and what its networks are."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tiny import BATCH, OPERATORS, SIZE, build_method, encoder_of, make_views
from torch import Tensor, nn

from mast.augment import Record, Views
from mast.core.checkpoint import load_checkpoint, save_checkpoint
from mast.core.optim import OptimizerConfig, make_optimizer
from mast.methods import Embedding, Mast, Method
from mast.models.encoders import usual_normalization
from paper.outputs import head_weights

OPTIMIZERS = {
    "lars": OptimizerConfig("lars", lr=0.3, weight_decay=1e-4, trust=0.02),
    "adamw": OptimizerConfig("adamw", lr=0.01, weight_decay=1e-2),
}
LAST = {  # by method, a weight through which the loss is computed
    "mast": "projector.mean_head.weight",
    "looc": "projector.heads.2.head.weight",
    "obow": "generator.head.weight",
    "mae": "leave.weight",
    "supervised": "classifier.weight",
}


class Variant(NamedTuple):
    """A method over the tiny encoder."""

    method: str
    projector: dict[str, Any]
    options: dict[str, Any]
    views: int = 2
    heads: str | None = None  # that predict: their place over the representation, "" for others

    def build(self, seed: int = 0) -> Method:
        return build_method(self.method, self.projector, self.options, seed)


class Contract:
    """The tests of all variants of a class that has them."""

    variants: ClassVar[Mapping[str, Variant]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        metafunc.parametrize("variant", self.variants.values(), ids=self.variants)

    def test_images_of_five_channels(self, variant: Variant) -> None:
        """Two steps that reach every channel of the first layer, and an embedding."""
        config = replace(encoder_of(variant.method), **usual_normalization(5)._asdict())
        name, projector, options, *_ = variant
        method = build_method(name, projector, options, encoder=config)
        views = make_views(0, variant.views)
        generator = torch.Generator().manual_seed(1)
        shape = (BATCH, 5, SIZE, SIZE)
        images = [torch.rand(shape, generator=generator) for _ in views.images]
        views = Views(tuple(images), views.records, label_B=views.label_B)
        optimizer = optimizer_of(method, "adamw")
        for _ in range(2):
            optimizer.zero_grad()
            output = method(views, 0.0)
            output["loss"].backward()
            optimizer.step()
            assert bool(output["loss"].isfinite())
        first = next(p for p in method.encoder.parameters() if p.ndim == 4 and p.shape[1] == 5)
        assert first.grad is not None
        assert first.grad.abs().amax(dim=(0, 2, 3)).min() > 0
        assert Embedding(method.eval())(images[0]).shape[0] == BATCH

    def test_steps_and_resumes(self, variant: Variant, tmp_path: Path) -> None:
        steps_and_resumes(variant, "adamw", tmp_path)

    def test_gradient_reaches_what_the_loss_depends_on(self, variant: Variant) -> None:
        method = variant.build()
        method(make_views(0, variant.views), 0.0)["loss"].backward()
        moved = {
            name
            for name, parameter in method.named_parameters()
            if parameter.grad is not None and parameter.grad.abs().max() > 0
        }
        first = "patch_embed.proj" if variant.method == "mae" else "conv1"
        last = LAST.get(variant.method, "projector.head.weight")
        assert {f"encoder.model.{first}.weight", last} <= moved
        predicts = any("prediction" in name and "heads" in name for name in moved)
        assert predicts == (variant.heads is not None)
        if isinstance(method, Mast):
            assert ("projector.covariance_head.bias" in moved) == method.config.uncertainty
            assert ("masks.logits_DK" in moved) == (method.config.masks == "learned")

    def test_parameter_groups(self, variant: Variant) -> None:
        method = variant.build()
        names = {id(p): name for name, p in method.named_parameters() if p.requires_grad}
        groups: dict[str, list[str]] = {}
        for group in method.parameter_groups():
            members = [names[id(parameter)] for parameter in group["params"]]
            groups.setdefault(group["name"], []).extend(members)
            assert all(name.startswith(method.steady or "-") == group["steady"] for name in members)
        grouped = [name for members in groups.values() for name in members]
        assert sorted(grouped) == sorted(names.values())
        assert set(groups.get("gates", [])) == {
            name for name in names.values() if name.startswith("masks.") or name.endswith(".power")
        }
        parameters = dict(method.named_parameters())
        assert all(parameters[name].ndim == 1 for name in groups["vectors"])
        assert all(parameters[name].ndim >= 2 for name in groups["weights"])

    def test_head_weights_are_those_over_the_representation(self, variant: Variant) -> None:
        method = variant.build()
        readings = head_weights(method)
        assert bool(readings) == bool(variant.heads)
        for name, reading_HC in readings.items():
            hidden = method.get_submodule(f"{variant.heads}.heads.{name}.0")
            first_BC = method.encoder(make_views(0).images[0])
            seen_BH = hidden(torch.cat([first_BC, torch.zeros_like(first_BC)], dim=1)) - hidden.bias
            assert torch.allclose(first_BC @ reading_HC.T, seen_BH, atol=1e-5)


def step(
    method: Method, optimizer: torch.optim.Optimizer, seed: int, views: int
) -> dict[str, Tensor]:
    optimizer.zero_grad(set_to_none=True)
    output = method(make_views(seed, views), 0.5)
    output["loss"].backward()
    optimizer.step()
    method.after_step(0.5)
    return output


def optimizer_of(method: Method, name: str) -> torch.optim.Optimizer:
    return make_optimizer(method.parameter_groups(), OPTIMIZERS[name], BATCH)


def steps_and_resumes(variant: Variant, optimizer_name: str, folder: Path) -> None:
    method = variant.build()
    optimizer = optimizer_of(method, optimizer_name)
    for seed in range(2):
        output = step(method, optimizer, seed, variant.views)
        assert all(torch.isfinite(value) for value in output.values()), output
        terms = [value for name, value in output.items() if name.startswith("term/")]
        torch.testing.assert_close(sum(terms), output["loss"].detach(), rtol=1e-6, atol=1e-6)
        extra = {name for name in output if not name.startswith(("term/", "stat/"))}
        assert extra == {"loss"}
        assert not any(value.requires_grad for name, value in output.items() if name != "loss")
        figures = method.statistics()
        assert all(n.startswith("stat/") and isinstance(x, float) for n, x in figures.items())
        for name, parameter in method.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, name
            assert torch.isfinite(parameter).all(), name
    save_checkpoint(
        folder / "last.pt", {"method": method.state_dict(), "optimizer": optimizer.state_dict()}
    )
    state = load_checkpoint(folder / "last.pt")
    resumed = variant.build(seed=5)
    resumed.load_state_dict(state["method"])
    resumed_optimizer = optimizer_of(resumed, optimizer_name)
    resumed_optimizer.load_state_dict(state["optimizer"])
    expected = step(method, optimizer, 2, variant.views)
    found = step(resumed, resumed_optimizer, 2, variant.views)
    assert expected.keys() == found.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert all(
        torch.equal(value, resumed.state_dict()[name])
        for name, value in method.state_dict().items()
    )


# ------------------------------------------------------------------------------------ formulas


def built(name: str, options: dict[str, Any], count: int = 2) -> tuple[Any, tuple[Tensor, ...]]:
    """A method, and the images of a batch; in training mode, so that BatchNorm is the batch's."""
    return build_method(name, {}, options), make_views(0, count).images


def of_sides(*sides: int) -> Views:
    """Views of random pixels."""
    generator = torch.Generator().manual_seed(0)
    images = tuple(torch.rand(BATCH, 3, side, side, generator=generator) for side in sides)
    applied_BK = torch.zeros(BATCH, len(OPERATORS), dtype=torch.bool)
    return Views(images, tuple(Record(OPERATORS, applied_BK, {}) for _ in images))


def loss_of(method: Any, count: int = 2, progress: float = 0.0) -> float:
    loss: float = method(make_views(0, count), progress)["loss"].item()
    return loss


def unit(embedding_BD: Tensor) -> Tensor:
    return F.normalize(embedding_BD.double(), dim=-1)


@torch.no_grad()
def follows(name: str, options: dict[str, Any], rises: bool, *parts: str) -> None:
    """With a momentum of 0.8, of 0.9 in the middle of a run in which it rises."""
    method, _ = built(name, {"momentum": 0.8, **options})
    student = [weight for part in parts for weight in method.get_submodule(part).parameters()]
    before = [parameter.clone() for parameter in method.teacher.parameters()]
    for parameter in student:
        parameter.add_(1.0)
    method.after_step(0.5)
    pairs = zip(method.teacher.parameters(), before, student, strict=name != "dino")
    for new, old, _ in pairs:  # behind DINO's projector are prototypes
        torch.testing.assert_close(new - old, torch.full_like(old, 0.1 if rises else 0.2))
    method.load_encoder(method.encoder.model.state_dict())
    own, state = method.teacher.encoder.state_dict(), method.encoder.state_dict()
    assert all(torch.equal(own[key], value) for key, value in state.items())


def layers(part: nn.Module) -> list[str]:
    """The kinds of its layers, in order."""
    leaves = [m for m in part.modules() if not list(m.children())]
    return [
        type(leaf).__name__ + (" without scale" if getattr(leaf, "affine", True) is False else "")
        for leaf in leaves
        if not isinstance(leaf, nn.Identity)
    ]
