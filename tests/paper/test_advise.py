"""`python -m paper advise` of encoders that are no runs, and what it refuses."""

import re
import shutil
from pathlib import Path

import pytest
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment.operators.color import gray
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from paper.__main__ import PROGRAM
from paper.advise import AdviceResult, advise

INSIGHT = Path(__file__).parents[2] / "docs" / "insight.md"


@pytest.fixture
def here(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, but for the set that the documents name."""
    shutil.copytree(photos, tmp_path / "flowers17")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


class Seen(nn.Module):
    """Coarse colors without brightness; one that is color-blind sees the brightness alone."""

    def __init__(self, color_blind: bool) -> None:
        super().__init__()
        self.color_blind = color_blind
        self.calls = 0

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.calls += 1
        gray_BCHW = gray(images_BCHW)
        seen_BCHW = gray_BCHW if self.color_blind else images_BCHW - gray_BCHW
        return F.adaptive_avg_pool2d(seen_BCHW, 2).flatten(1)


def shown(advice: AdviceResult) -> list[str]:
    """The operators in a table, each once, by name."""
    return sorted({str(row[1]) for row in advice.rows})


def test_the_python_of_the_document(here: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", INSIGHT.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(code.replace("size=64", "size=32"), names)
    advice, afforded = names["advice"], names["afforded"]
    assert shown(advice) == ["grayscale", "rotate"]
    assert afforded == {row[1] for row in advice.rows if row[-1] == "can afford it"}


def test_a_name_is_measured_once_at_each_size(here: Path) -> None:
    name, images = "timm:test_resnet", "flowers17"  # half a million weights
    advice = advise(name, images, size=32, operators="rotate", untrained=True)
    (file,) = (here / "runs" / "timm-test_resnet-random-0" / "evaluations").glob("*.json")
    written = file.stat().st_mtime_ns
    assert advise(name, images, size=32, operators="rotate", untrained=True) == advice
    assert file.stat().st_mtime_ns == written
    more = advise(name, images, size=32, operators="invert", untrained=True)
    assert shown(more) == ["invert", "rotate"]  # what was measured stays
    assert {row for row in more.rows if row[1] != "invert"} == {*advice.rows}
    only = advise(name, images, size=40, operators="invert", untrained=True)
    assert shown(only) == ["invert"]


def test_a_module_that_ignores_color_can_afford_grayscale(here: Path) -> None:
    """Classes differ by a color channel."""
    verdicts = {}
    for color_blind in (False, True):
        module = Seen(color_blind)
        advice = advise(module, Path("flowers17"), operators=["grayscale"], size=32)
        (verdicts[color_blind],) = advice.rows
    calls = module.calls
    assert advise(module, "flowers17", operators="grayscale", size=32) == advice
    assert module.calls > calls  # its code may have changed
    assert verdicts[True][2] == pytest.approx(0, abs=1e-9)
    assert verdicts[False][2] < verdicts[True][2]


def test_what_is_refused(ours: RunFolder, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "unlabelled" / "train").mkdir(parents=True)
    (here / "unlabelled" / "test").mkdir()
    for part in ("train", "test"):
        shutil.copy(next((here / "flowers17" / part).rglob("*.*")), here / "unlabelled" / part)
    encoder = str(ours.path)
    for words, message in (
        (["resnet81", "--data", "flowers17"], "no run folder 'resnet81' here, and unknown"),
        (["timm:resnet18.a1_in1k", "--data", "flowers17"], "not in the cache of the Hugging Face"),
        ([encoder, "--data", "flowers17", "--operators", "inverts"],
         r"unknown operator 'inverts'\. Did you mean 'invert'"),
        ([encoder, "--data", "flowers17", "--views", "mast51"],
         r"unknown preset of views 'mast51'\. Did you mean 'mast5'"),
        ([encoder, "--data", "unlabelled"], "share a kind of label"),
        ([encoder], "give data, the labelled set of the tasks"),
    ):  # fmt: skip
        assert main(["advise", *words], PROGRAM) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(message, line)
    with pytest.raises(UserError, match="Seen does not say at which size it takes images"):
        advise(Seen(False), "flowers17")
    assert not (here / "runs").exists()
    assert not ours.evaluations.exists()
