"""Every method, in every variant, keeps the contract of `Method`."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import Contract, Variant, steps_and_resumes
from tiny import BATCH, CLASSES, DIM, ENCODER, OPERATORS, build_method, make_views
from torch import Tensor

import mast
from mast.config import build_method as build_run
from mast.core.errors import UserError
from mast.methods import Embedding, MastC
from mast.models import EncoderConfig
from paper.outputs import MethodOutput

PROPERTIES = ("color", "position", "orientation")
BLOCKS = {"exempt": PROPERTIES, "exempt_share": 0.2}
DISTANCE = {"compare": "distance", "predict_from": ("block", "representation")}
VARIANTS = {
    "contrast": Variant("mast_c", {}, BLOCKS, heads="predictions.representation"),
    "contrast, depths": Variant("mast_c", {}, {"predict_from": ("depths",)}, heads=""),
    "distance": Variant("mast_c", {}, BLOCKS | DISTANCE, heads="predictions.representation"),
    "distance, block": Variant("mast_c", {}, DISTANCE | {"predict_from": ("block",)}, heads=""),
    "mast": Variant("mast", {}, {}),
    "mast, after": Variant("mast", {"pool": "after"}, {"uncertainty": False}),
    "mast, average": Variant("mast", {"pool": "average"}, {"kl_weight": 25.0}),
    "printed": Variant("mast", {}, {"printed": True}),
    "handcrafted": Variant("mast", {}, {"masks": "handcrafted"}),
    "no masks": Variant("mast", {}, {"masks": "none", "uncertainty": False}),
    "vicreg": Variant("vicreg", {}, {}),
    "augself": Variant("vicreg", {}, {"predicted": PROPERTIES}, heads="prediction"),
    "simclr": Variant("simclr", {}, {}),
    "moco v2": Variant("moco_v2", {}, {"queue": 3 * BATCH - 2}),
    "moco v2, augself": Variant(
        "moco_v2", {}, {"queue": BATCH, "predicted": PROPERTIES}, heads="prediction"
    ),
    "simsiam": Variant("simsiam", {}, {}),
    "byol": Variant("byol", {}, {}),
    "barlow twins": Variant("barlow_twins", {}, {}),
    "lejepa": Variant("lejepa", {}, {"directions": 8, "predicted": PROPERTIES}, heads="prediction"),
    "visreg": Variant("visreg", {}, {"directions": 8}),
    "swav": Variant("swav", {}, {"prototypes": 12, "frozen": 0.0}),
    "dino": Variant("dino", {}, {"prototypes": 12, "frozen": 0.0}),
    "mae": Variant("mae", {}, {"dim": 16, "depth": 1, "heads": 2}),
    "supervised": Variant("supervised", {}, {"classes": CLASSES}),
}


class TestEveryMethod(Contract):
    variants = VARIANTS


@pytest.mark.parametrize("name", ["mast", "byol"])
def test_steps_of_lars_resume(name: str, tmp_path: Path) -> None:
    steps_and_resumes(VARIANTS[name], "lars", tmp_path)


VIT = {"embed_dim": 24, "depth": 1, "num_heads": 3, "patch_size": 8}
ENCODERS = {
    "resnet": ENCODER,
    "convnext": EncoderConfig("convnext_atto", {"dims": (8, 8, 16, 16), "depths": (1, 1, 1, 1)}),
    "vit": EncoderConfig("vit_tiny_patch16_224", VIT),
    "vit, average": EncoderConfig(  # its last norm is behind the pooling
        "vit_tiny_patch16_224", VIT | {"global_pool": "avg"}
    ),
}


@pytest.mark.parametrize(
    ("of", "pool"), [("mast", "before"), ("mast", "after"), ("mast", "average"), ("mast_c", "")]
)
@pytest.mark.parametrize("name", ENCODERS)
def test_what_requires_a_gradient_gets_one(name: str, of: str, pool: str) -> None:
    """Data-parallel training would stop at the second step."""
    projector = {"pool": pool} if pool else {}
    options = {} if pool else {"predict_from": ("block", "representation")}
    method = build_method(of, projector, options, encoder=ENCODERS[name])
    method(make_views(0), 0.0)["loss"].backward()
    without = [n for n, p in method.named_parameters() if p.requires_grad and p.grad is None]
    assert not without
    frozen = {n for n, p in method.encoder.named_parameters() if not p.requires_grad}
    behind = {"convnext": "model.head.norm", "vit, average": "model.fc_norm"}.get(name)
    if pool in ("average", ""):
        behind = None
    expected = {f"{behind}.weight", f"{behind}.bias"} if behind else set()
    assert frozen == expected


@pytest.mark.parametrize(
    ("recipe", "objective", "message"),
    [
        ("mast_c5_small", {"prediction": {"weight": -1.0}}, "weight: expected a number in"),
        ("vicreg5_small", {"prediction": {"hidden": 0}}, "hidden: expected a number in"),
        ("vicreg5_small", {"predicted": ["colour"]}, "that operators change 'colour'"),
        ("mast_c5_small", {"exempt": ["color", "color"]}, "named twice: color, color"),
        ("mast_c5_small", {"exempt_share": 1.0}, r"exempt_share: expected a number in \(0, 1\)"),
        ("byol_small", {"momentum": 1.5}, "objective.momentum: expected a number in .*, got 1.5"),
        ("mast_c5_small", {"predict_from": "dephts"}, "Did you mean .depths."),
        ("mast_c5_small", {"predict_from": "block", "predicted": ["position"]}, "needs an exempt"),
        ("mae", {"hidden": 1.0}, r"objective.hidden: expected a number in \(0, 1\), got 1"),
        ("mae", {"dim": 20}, r"dim: expected a multiple of four times heads \(16\), got 20"),
        ("mae", {"depth": 0}, r"objective.depth: expected a number in \[1, 1000\], got 0"),
    ],
)
def test_what_cannot_be_is_refused(recipe: str, objective: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        mast.configure(recipe, objective=objective)


def test_a_method_names_the_views_that_it_needs_before_a_run(tmp_path: Path) -> None:
    changes = {"data": "nowhere", "out": str(tmp_path / "run"), "views": "multicrop"}
    config = mast.configure("mast_c5_small", **changes)
    message = r"views: expected 2 views of an image for MAST-C \(ours\), got 8; choose"
    with pytest.raises(UserError, match=message):
        mast.pretrain(config)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=message):
        build_run(config)


def test_an_encoder_that_cannot_take_a_view_is_named() -> None:
    name = "timm:vit_tiny_patch16_224"
    vit = {"encoder": {"name": name}, "views": "dino"}
    with pytest.raises(UserError, match=rf"'{name}' cannot take images of 96 pixels"):
        build_run(mast.configure("swav_small", **vit))
    vit["encoder"]["options"] = {"dynamic_img_size": True}
    build_run(mast.configure("swav_small", **vit))


def test_a_run_without_a_block_says_so() -> None:
    method = build_method("mast_c", {}, {"exempt": ("parts",), "predicted": ("parts",)})
    assert isinstance(method, MastC)
    assert torch.equal(method.masks(), torch.ones(DIM, len(OPERATORS)))
    output = method(make_views(0), 0.0)
    assert not any("block" in name for name in output)
    text, other = method.warnings({name: value.item() for name, value in output.items()})
    assert other == "parts is not predicted: no operator of the views changes it"
    assert text.startswith("nothing is exempt: no operator of the views changes objective.exempt (")


@torch.no_grad()
def test_the_ensemble_of_mast_is_its_masked_embeddings() -> None:
    method = VARIANTS["distance"].build().eval()
    images_BCHW = make_views(0).images[0]
    mean_BD = method.embed(images_BCHW)
    expected = torch.cat([mean_BD * mask_D for mask_D in method.masks().T], dim=1)
    torch.testing.assert_close(MethodOutput(method, "ensemble")(images_BCHW), expected)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["augself", "no masks"])
def test_where_nothing_is_exempt_nothing_can_be_matched(variant: str) -> None:
    method = VARIANTS[variant].build().eval()
    embedding, images_BCHW = Embedding(method), make_views(0).images[0]
    first = embedding.trained_with[0]
    assert torch.equal(embedding(images_BCHW, ignore=first), method.embed(images_BCHW))
    with pytest.raises(UserError, match="nothing can be matched by its embedding"):
        embedding.weights(match=first)
    with pytest.raises(UserError, match="unknown operator or property 'invert'"):
        embedding.weights(ignore="invert")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what the compiler looks at warns
def test_compiled_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured and differentiated as for `torch.compile`; the code it would make is PyTorch's."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    eager, compiled = VARIANTS["mast"].build(), VARIANTS["mast"].build()
    compiled.compile_parts()
    losses = [method(make_views(0), 0.0)["loss"] for method in (eager, compiled)]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)
    for loss in losses:
        loss.backward()
    for (name, parameter), other in zip(
        eager.named_parameters(), compiled.parameters(), strict=True
    ):
        torch.testing.assert_close(other.grad, parameter.grad, rtol=1e-3, atol=1e-4, msg=name)
    assert eager.state_dict().keys() == compiled.state_dict().keys()
    copied = copy.deepcopy(compiled.encoder)
    with torch.no_grad():
        next(copied.parameters()).zero_()
    images = make_views(0).images[0]
    assert not torch.equal(copied(images), compiled.encoder(images))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what the compiler looks at warns
@pytest.mark.parametrize(
    ("variant", "heads"), [("distance", 2), ("vicreg", 0), ("contrast", 2), ("mast", 0)]
)
def test_encoder_projector_objective_and_heads_are_a_graph_each(
    variant: str, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(" ".join(str(node.target) for node in graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend, fullgraph=True))
    for each in ("vicreg", variant):  # two runs in one process
        graphs.clear()
        method = VARIANTS[each].build()
        method.compile_parts()
        for seed in range(2):
            method(make_views(seed), 0.0)["loss"].backward()
    assert ["conv2d" in graph for graph in graphs] == [True, False, False] + [False] * heads
    assert ["batch_norm" in graph for graph in graphs] == [True, True, False] + [True] * heads


def test_graphs_are_compiled_parts_whose_results_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes: list[str] = []
    begun: list[None] = []
    memory = torch.zeros(())  # which every replay writes again

    def compiled(function: Any, mode: str) -> Any:
        modes.append(mode)
        return function

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(None))
    method = VARIANTS["vicreg"].build()
    method.compile_parts(graphs=True)
    assert modes == ["reduce-overhead"] * 3
    monkeypatch.setattr(method, "step", lambda *_: {"loss": memory.add_(1.0)})
    losses = [method(make_views(0), 0.0)["loss"] for _ in range(2)]
    assert losses == [1.0, 2.0]
    assert len(begun) == 2
