"""What a command says at its end: where its result is, and which command may come next."""

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mast
from mast.cli import arguments_of, main
from mast.core.run import RunFolder


@pytest.fixture
def run(ours: RunFolder, tmp_path: Path) -> Path:
    """A finished run whose name a shell would take apart."""
    return Path(shutil.move(ours.path, tmp_path / "Ann's run"))


def last_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """What a command printed in all, and the words of the command that may come next."""
    assert main(words) == 0
    printed = capsys.readouterr()
    *_, line = printed.err.splitlines()
    assert line.startswith("next: ")
    return printed.out + printed.err, shlex.split(line.removeprefix("next: "))


def test_pretrain(
    tiny: Callable[..., mast.PretrainConfig],
    tmp_path: Path,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, run = tiny(epochs=1), tmp_path / "a run"
    (tmp_path / "config.yaml").write_text(mast.show_config(config))
    words = ["pretrain", "--config", str(tmp_path / "config.yaml"), "--out", str(run)]
    printed, following = last_line(words, capsys)
    assert f"done: {run / 'encoder.safetensors'}" in printed
    assert following == ["mast", "evaluate", str(run), "--data", "SET"]
    assert arguments_of("evaluate", following[2:])["encoder"] == str(run)
    _, again = last_line(words, capsys)
    assert again == following


def test_evaluate_and_analyze(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(run), "--data", str(photos), "--protocols", "knn"]
    printed, following = last_line(words, capsys)
    (file,) = (run / "evaluations").glob("knn-*.json")
    assert f"done: {file}" in printed
    assert following == ["mast", "report", str(run)]
    printed, following = last_line(["analyze", str(run), "--analyses", "curves"], capsys)
    assert f"{run / 'analysis' / 'curves.npz'}\n" in printed
    assert following == ["mast", "report", str(run)]
    assert main(following[1:]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"


def test_nothing_follows_the_evaluation_of_an_encoder_without_a_page(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", "resnet18", "--size", "32", "--data", str(photos), "--protocols", "knn"]
    assert main(words) == 0
    *_, last = capsys.readouterr().err.splitlines()
    assert Path(last.removeprefix("done: ")).is_file()


def test_predict(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    printed, following = last_line(["fit", str(run), "--data", str(photos)], capsys)
    (classifier,) = run.glob("classifier-*.safetensors")
    assert f"classifier: {classifier}\n" in printed
    assert following == ["mast", "predict", str(classifier), "--data", "FOLDER"]
    images = str(photos / "test" / "class0")
    for source in (classifier, run):
        printed, following = last_line(["predict", str(source), "--data", images], capsys)
        (table,) = tmp_path.glob("predictions-test-class0-by-*.csv")
        assert table.stem.endswith(f"-{classifier.stem.replace('classifier', run.name, 1)}")
        assert f"table: {table}\n" in printed
        assert following == [
            "mast", "outliers", str(run), "--data", images, "--out", "outliers.html",
        ]  # fmt: skip
    assert main(following[1:]) == 0


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_embed(
    ending: str, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / f"some features.{ending}"
    words = ["embed", str(run), "--data", str(photos / "test"), "--out", str(file)]
    printed, following = last_line(words, capsys)
    assert printed.startswith(f"{file}\n")
    said = run_python(following, monkeypatch, capsys)
    assert ("(24, 16)\n" if ending == "npz" else "features: fixed_size_list<") in said


def run_python(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What `python -c …` prints."""
    program, option, code, *rest = words
    assert (program, option) == ("python", "-c")
    monkeypatch.setattr(sys, "argv", ["-c", *rest])
    exec(code, {})
    return capsys.readouterr().out
