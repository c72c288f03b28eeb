"""`mast analyze`, and analyze and advise of the paper, on runs that were really trained."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import mast
from mast.analyses import ANALYSES
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from paper import analyses
from paper.__main__ import PROGRAM
from paper.advise import advise


@pytest.mark.slow
def test_analyze_a_labelled_set(
    trained: Callable[..., RunFolder], theirs: RunFolder, photos: Path, tmp_path: Path
) -> None:
    ours = trained("uncertain of two", tmp_path / "run")
    command = ["analyze", str(ours.path), "--data", str(photos), "--beside", str(theirs.path)]
    assert main([*command, "--images", "12"], PROGRAM) == 0
    made = sorted(ANALYSES.keys() - {"predicted_operators"})  # for which these are too few images
    for kind in ("npz", "png", "svg"):
        assert sorted(path.stem for path in ours.analysis.glob(f"*.{kind}")) == made
    with np.load(ours.analysis / "invariance.npz") as arrays:
        assert arrays["beside"].tolist() == ["theirs"]
        assert np.isfinite(arrays["similarity"]).all()
    with np.load(ours.analysis / "uncertainty.npz") as arrays:
        assert np.isfinite(arrays["class_accuracy"]).all()  # of the probe that it made
        assert arrays["pictures"].shape == (12, 64, 64, 3)
    measured = sorted(ours.evaluations.glob("*.json"))
    assert [path.stem.partition("-")[0] for path in measured] == ["embedding", "linear", "retained"]
    before = {path: path.stat().st_mtime_ns for path in measured}
    first = (ours.analysis / "invariance.npz").read_bytes()
    assert main([*command, "--images", "12", "--analyses", "invariance"], PROGRAM) == 0
    assert (ours.analysis / "invariance.npz").read_bytes() == first
    assert {path: path.stat().st_mtime_ns for path in measured} == before  # not measured again
    namesake = shutil.copytree(theirs.path, tmp_path / "other" / "theirs")
    mast.analyze(ours.path, photos, "invariance", [theirs.path, namesake], images=12)
    with np.load(ours.analysis / "invariance.npz") as arrays:
        assert arrays["beside"].tolist()[1] == "other/theirs"


def test_analyze_images_alone_and_a_run_without_masks(
    theirs: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(theirs.path), "--data", str(photos / "test")], PROGRAM) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "This run has no masks: its method learns none." in shown
    assert "This run predicts no uncertainty" in shown
    made = {path.stem for path in theirs.analysis.glob("*.npz")}
    assert made == {"curves", "neighbours", "predicted_operators", "subspaces"}
    assert len(mast.draw(theirs.path, "curves").axes) > 3
    without = repr(mast.analyze(theirs.path))
    assert without.count("It needs images") == without.count("analyze with --data") == 1
    with pytest.raises(UserError, match=r"masks\.npz does not exist; make it first"):
        mast.draw(theirs.path, "masks")
    with pytest.raises(UserError, match=r"unknown analysis 'mask'\. Did you mean 'masks'") as error:
        mast.analyze(theirs.path, analyses="mask")
    assert "--" not in str(error.value)
    with pytest.raises(UserError, match="is not a run folder"):
        mast.analyze(tmp_path)


def test_advise(
    trained: Callable[..., RunFolder], photos: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Of a run of two operators: by command and in Python, by its folder and by its file."""
    run = trained("of two", tmp_path / "run")
    assert main(["advise", str(run.path), "--data", str(photos)], PROGRAM) == 0
    assert "color jitter" in " ".join(capsys.readouterr().out.split())
    assert (run.analysis / "advice.svg").is_file()
    (file,) = run.evaluations.glob("retained-*.json")
    written = file.stat().st_mtime_ns
    advice = advise(run.encoder, photos)
    assert file.stat().st_mtime_ns == written  # what was measured stays
    assert sorted(row[1] for row in advice.rows) == ["color jitter", "horizontal flip"]


def test_a_run_that_diverged_is_looked_into(
    ours: RunFolder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.load(ours.last, weights_only=False)
    for value in state["module"].values():
        if value.is_floating_point():
            value.fill_(float("nan"))
    torch.save(state, ours.last)
    ours.embedding.unlink()  # the checkpoint is read where this file is missing
    analyses.register()
    wanted = ["masks", "subspaces", "uncertainty"]
    insights = {one.name: one for one in mast.analyze(ours.path, str(photos), wanted, images=12)}
    assert insights["masks"].text == "The masks are not finite: the run diverged."
    for name in ("subspaces", "uncertainty"):
        assert "NaN, infinite or beyond" in insights[name].text
