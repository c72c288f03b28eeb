"""`python -m paper study`: runs are made once, continued where one was killed, and answer."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mast
from mast.cli import main
from mast.config import read
from mast.core.errors import UserError
from mast.core.run import RunFolder
from paper.__main__ import PROGRAM
from paper.study import study

pytestmark = pytest.mark.slow

TWO = ("horizontal_flip", "color_jitter")


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Time and content of every file of the runs of studies."""
    files = [path for path in folder.rglob("*") if path.suffix in (".pt", ".safetensors", ".json")]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_by_command(
    trained: Callable[..., RunFolder], photos: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run = trained("of two", tmp_path / "run")
    studies = run.path / "studies"
    command = ["study", "leave_one_out", str(run.path), "--data", str(photos), "--device", "cpu"]
    assert main([*command, "--seeds", "0", "1", "--dry"], PROGRAM) == 0
    assert capsys.readouterr().out.count("to do") == 6
    assert not studies.exists()
    assert main(command, PROGRAM) == 0
    names = ["base", "without-color_jitter", "without-horizontal_flip"]
    folders = [studies / f"{name}-seed0" for name in names]
    assert sorted(studies.iterdir()) == folders
    assert read(folders[1] / "config.yaml").operators == ("horizontal_flip",)
    for kind in ("npz", "png", "svg"):
        assert (run.analysis / f"leave_one_out.{kind}").is_file()
    with np.load(run.analysis / "leave_one_out.npz") as arrays:
        assert arrays["operators"].tolist() == list(TWO)
        assert np.isfinite(arrays["change_by_seed"]).all()
        assert arrays["change_by_seed"].shape == (1, 1, 2)
        answer = arrays["change"]
    # The base is the run itself, trained again.
    assert (folders[0] / "encoder.safetensors").read_bytes() == run.encoder.read_bytes()

    # Again: nothing is done. Without the half of one run and all of another: only these are.
    before = contents(studies)
    assert main(command, PROGRAM) == 0
    assert contents(studies) == before
    (folders[1] / "encoder.safetensors").unlink()
    shutil.rmtree(folders[2])
    capsys.readouterr()
    assert main([*command, "--dry"], PROGRAM) == 0
    shown = capsys.readouterr().out
    assert [shown.count(state) for state in ("finished", "begun", "to do")] == [1, 1, 1]
    assert main(command, PROGRAM) == 0
    after = contents(studies)
    again = {Path(file).relative_to(studies).parts[0] for file in after
             if after[file] != before.get(file)}  # fmt: skip
    assert again == {folder.name for folder in folders[1:]}
    for folder in folders:
        encoder = str(folder / "encoder.safetensors")
        assert after[encoder][1] == before[encoder][1]
    with np.load(run.analysis / "leave_one_out.npz") as arrays:
        assert np.array_equal(arrays["change"], answer)


def test_cheaper_runs_and_one_that_fails(
    tiny: Callable[..., mast.PretrainConfig], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = mast.pretrain(tiny(epochs=2, operators=list(TWO)))
    studies = run.path / "studies"

    def diverge(config: mast.PretrainConfig) -> RunFolder:
        if config.operators == ("color_jitter",):
            raise UserError("the loss is not finite at step 1")
        return mast.pretrain(config)

    monkeypatch.setattr("paper.study.pretrain", diverge)
    done = study("leave_one_out", run.path, str(photos), epochs=1, device="cpu")
    assert [at.state for at in done.runs] == [
        "finished", "the loss is not finite at step 1", "finished",
    ]  # fmt: skip
    assert "2 of 3 runs are finished." in done.insight.text
    assert read(studies / "base-seed0" / "config.yaml").epochs == 1
    with pytest.raises(UserError, match="compares top-1 accuracy, which retrieval lacks"):
        study("leave_one_out", run.path, photos, protocols="retrieval")
    with pytest.raises(UserError, match="of images with one class: leave svm out"):
        study("leave_one_out", run.path, photos, protocols=["linear", "svm"])
    with pytest.raises(UserError, match="has 1 epoch and would now have 2; give the same"):
        study("leave_one_out", run.path, str(photos), device="cpu")
    other = study("leave_one_out", run.path, str(photos), protocols=["knn"], epochs=1, dry=True)
    assert [at.state for at in other.runs] == ["begun", "to do", "begun"]  # trained, not measured
    for _ in range(2):  # measured once: what is asked of `retained` is not asked of `retrieval`
        before = {file: file.stat().st_mtime_ns for file in studies.rglob("evaluations/*.json")}
        study("leave_one_out", run.path, photos, protocols=["knn", "retrieval"], epochs=1)
    assert before == {file: file.stat().st_mtime_ns for file in before}
    assert {file.name.partition("-")[0] for file in before} >= {"retrieval"}
