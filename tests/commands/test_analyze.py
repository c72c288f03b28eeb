"""`mast analyze` and `mast advise`, on runs that were really trained."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import mast
from mast.analyses import ANALYSES
from mast.augment import PRESETS
from mast.augment.operators.color import gray
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.data import open_canvas
from mast.measure.frozen import FrozenEncoder
from mast.measure.result import Result
from mast.runs.subject import outputs


def test_analyze_a_labelled_set(
    ours: RunFolder, theirs: RunFolder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["analyze", str(ours.path), "--data", str(photos), "--beside", str(theirs.path)]
    assert main([*command, "--images", "12"]) == 0
    made = sorted(ANALYSES.keys() - {"predicted_operators"})  # for which these are too few images
    assert sorted(path.stem for path in ours.analysis.glob("*.npz")) == made
    for kind in ("png", "svg"):
        assert sorted(path.stem for path in ours.analysis.glob(f"*.{kind}")) == made
    with np.load(ours.analysis / "invariance.npz") as arrays:
        assert arrays["beside"].tolist() == ["theirs"]
        assert np.isfinite(arrays["similarity"]).all()
    with np.load(ours.analysis / "uncertainty.npz") as arrays:
        assert np.isfinite(arrays["class_accuracy"]).all()  # of the probe that it made
        assert arrays["pictures"].shape == (12, 64, 64, 3)
    assert len(mast.draw(ours.path, "curves").axes) > 3
    with pytest.raises(UserError, match=r"leave_one_out\.npz does not exist; make it first"):
        mast.draw(ours.path, "leave_one_out")
    measured = sorted(ours.evaluations.glob("*.json"))
    assert [path.stem.partition("-")[0] for path in measured] == ["embedding", "linear", "retained"]
    before = {path: path.stat().st_mtime_ns for path in measured}
    first = (ours.analysis / "invariance.npz").read_bytes()
    assert main([*command, "--images", "12", "--analyses", "invariance"]) == 0
    assert (ours.analysis / "invariance.npz").read_bytes() == first
    assert {path: path.stat().st_mtime_ns for path in measured} == before  # not measured again


def test_analyze_images_alone_and_a_run_without_masks(
    theirs: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(theirs.path), "--data", str(photos / "test")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "This run has no masks: its method learns none." in shown
    assert "This run predicts no uncertainty" in shown
    assert sorted(path.stem for path in theirs.analysis.glob("*.npz")) == [
        "curves",
        "neighbours",
        "predicted_operators",
        "subspaces",
    ]
    with np.load(theirs.analysis / "predicted_operators.npz") as arrays:
        assert arrays["spaces"].tolist() == ["representation", "whole embedding"]
        assert arrays["operators"].tolist() == list(PRESETS["mast5"].operators)
        assert np.isfinite(arrays["explained"]).any()
    with pytest.raises(UserError, match="told is called predicted_operators now"):
        mast.analyze(theirs.path, analyses=["told"])
    with pytest.raises(UserError, match=r"unknown analysis 'mask'\. Did you mean 'masks'"):
        mast.analyze(theirs.path, analyses=["mask"])
    with pytest.raises(UserError, match="is not a run folder"):
        mast.analyze(tmp_path)


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_of_either_kind_and_one_name_where_several_may_be(
    kind: Callable[[object], str | Path], ours: RunFolder, theirs: RunFolder, photos: Path
) -> None:
    run, beside, data = (kind(path) for path in (ours.path, theirs.path, photos))
    (insight,) = mast.analyze(
        run, data, analyses="invariance", beside=beside, images=6, measure=False
    )
    with np.load(str(insight.file)) as arrays:
        assert arrays["beside"].tolist() == ["theirs"]
    assert mast.draw(run, "invariance").axes
    advice = mast.advise(run, data, operators="invert")
    assert "invert" in {row[1] for row in advice.rows}
    planned = mast.study("epochs", run, data, seeds=3, protocols="knn", dry=True)
    assert {each.seed for each in planned.runs} == {3}
    with pytest.raises(UserError) as error:
        mast.analyze(run, analyses="x")
    assert "--" not in str(error.value)


class Luminance(nn.Module):
    """The brightness of a coarse grid: it ignores colour, and nothing else."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(gray(images_BCHW), 4).flatten(1)


def test_an_encoder_that_ignores_colour_is_invariant_to_grayscale(photos: Path) -> None:
    canvases = open_canvas(str(photos / "test"), 32)
    embed = outputs(FrozenEncoder(Luminance()), canvases, 32, seed=0)
    before = embed(None)
    assert F.cosine_similarity(before, embed(("grayscale", None))) == pytest.approx(
        torch.ones(24), abs=1e-4
    )
    assert not torch.allclose(before, embed(("invert", None)), atol=0.05)  # that it does see


def test_a_single_operator(
    tiny: Callable[..., mast.PretrainConfig], photos: Path, tmp_path: Path
) -> None:
    operators = ["color_jitter"]
    one = mast.pretrain(tiny(epochs=1, out=str(tmp_path / "one"), operators=operators))
    found = {insight.name: insight for insight in mast.analyze(one.path, str(photos), images=6)}
    assert found["masks"].text.startswith("Color jitter is the only operator")
    for name in ("masks", "subspaces", "invariance", "predictions", "advice"):
        assert found[name].file is not None, found[name].text


def test_the_untrained_encoder_stands_beside(ours: RunFolder, photos: Path) -> None:
    command = ["evaluate", str(ours.path), "--data", str(photos), "--protocols", "knn"]
    assert main([*command, "--untrained"]) == 0
    assert main(command) == 0
    untrained, trained = (
        Result.read(next(folder.glob("evaluations/knn-*.json")))
        for folder in (ours.untrained, ours.path)
    )
    assert untrained.images == trained.images
    assert untrained.encoder["fingerprint"] != trained.encoder["fingerprint"]
    page = mast.report(ours.path).read_text()
    assert "<small>untrained</small>" in page
    with pytest.raises(UserError, match="is not a run folder"):
        mast.evaluate("resnet18", str(photos), untrained=True)


def test_advise(
    ours: RunFolder, theirs: RunFolder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", str(ours.path), "--data", str(photos)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("color", "jitter", "grayscale"):
        assert name in shown
    assert (ours.analysis / "advice.svg").is_file()
    advice = mast.advise(theirs.path, str(photos), operators=["invert"])
    assert sorted(row[1] for row in advice.rows) == [
        "color jitter", "gaussian blur", "grayscale", "horizontal flip", "invert",
        "random resized crop",
    ]  # fmt: skip
    (file,) = theirs.evaluations.glob("retained-*.json")
    written = file.stat().st_mtime_ns
    assert len(mast.advise(theirs.path, str(photos)).rows) == 6  # what was measured stays
    assert file.stat().st_mtime_ns == written
    assert advice.columns[-1] == "the task"  # there are no masks
    kept = Result.read(file)
    kept.settings["protocol"]["share"] = 1.0  # as somebody measured it for another purpose
    kept.write(theirs.path)
    again = mast.advise(theirs.path, str(photos), operators=["rotate"])
    assert {"invert", "rotate"} < {row[1] for row in again.rows}
    assert json.loads(file.read_text())["settings"]["protocol"]["share"] == 0.5


def test_a_run_that_diverged_is_looked_into(
    ours: RunFolder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.load(ours.last, weights_only=False)
    for value in state["module"].values():
        if value.is_floating_point():
            value.fill_(float("nan"))
    torch.save(state, ours.last)
    ours.embedding.unlink()  # the checkpoint is read where this file is missing
    insights = {one.name: one for one in mast.analyze(ours.path, str(photos), images=12)}
    assert insights["curves"].file is not None
    assert insights["masks"].text == "The masks are not finite: the run diverged."
    for name in ("subspaces", "invariance", "uncertainty"):
        assert "NaN, infinite or beyond" in insights[name].text
    assert "not measured: " in capsys.readouterr().err


def test_sets_whose_names_end_alike_stay_apart(ours: RunFolder, photos: Path) -> None:
    other = photos.parent / "other" / photos.name
    shutil.copytree(photos, other)
    next((other / "test").rglob("*.*")).unlink()
    for data in (photos, other):
        advice = mast.advise(ours.path, str(data))
        assert len(advice.rows) == 5  # of this set alone
    with np.load(ours.analysis / "advice.npz") as arrays:
        assert arrays["tasks"].tolist() == sorted(str(set_ / "test") for set_ in (photos, other))
