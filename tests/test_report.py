"""The page: it opens with the answer, stands alone, and says what is missing."""

import base64
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import mast
from mast.analyze import ANALYSES
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Checks that elements close in order; keeps text, links and sources."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.targets: list[str] = []
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert value is not None
            {"href": self.targets, "src": self.sources, "id": self.ids}.get(name, []).append(value)
        assert tag not in ("script", "link", "iframe")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def written(run: RunFolder, **options: object) -> Page:
    page = Page(mast.report(run.path, **options).read_text())  # type: ignore[arg-type]
    assert all(target.removeprefix("#") in page.ids for target in page.targets)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    return page


@pytest.fixture
def run(tiny: Callable[..., mast.PretrainConfig], tmp_path: Path) -> RunFolder:
    return mast.pretrain(tiny(epochs=1, out=str(tmp_path / "ours")))


def test_a_run_beside_another(
    run: RunFolder, tiny: Callable[..., mast.PretrainConfig], photos: Path, tmp_path: Path
) -> None:
    other = mast.pretrain(tiny("vicreg5_small", epochs=1, out=str(tmp_path / "theirs")))
    results = [mast.evaluate(one.path, str(photos), ("knn",))[0] for one in (run, other)]
    mast.analyze(run.path, str(photos / "test"), images=6)
    page = written(run, beside=[str(other.path)])
    top1 = [result.targets["class"].values["top1"] for result in results]
    assert page.text.startswith("ours ours MAST with timm:resnet18 on")
    assert (
        f"knn on photos0-test, class: {top1[0]:.1f} % (ours), {top1[1]:.1f} % (theirs)."
        in page.text
    )
    assert f"{top1[1] - top1[0]:+.1f}" in page.text
    assert len(page.sources) == len(ANALYSES)
    for source in page.sources:
        assert b"<svg" in base64.b64decode(source.partition(",")[2])
    assert "take the most alike dimensions" in page.text
    assert not re.search(r"https?://", (run.path / "report.html").read_text().split("base64")[0])


def test_a_bare_run_says_what_is_missing(run: RunFolder) -> None:
    page = written(run)
    assert "Nothing has been measured yet." in page.text
    assert page.text.count("There is none yet: mast analyze") == len(ANALYSES)
    assert page.sources == []
    run.append_metrics({"step": 4, "warning": "variance collapse: <b>it</b> fell & stayed"})
    run.append_metrics({"step": 5, "epoch": 9.0, "loss": float("nan"), "lr": 0.1})
    run.encoder.unlink()
    mast.analyze(run.path, analyses=["curves"])
    page = written(run)
    assert "It is not finished." in page.text
    assert "variance collapse: <b>it</b> fell & stayed" in page.text  # as text, not as markup
    assert "1 logged losses were not finite" in page.text


def test_by_command(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(run.path), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip().endswith("page.html")
    Page(out.read_text())
    with pytest.raises(UserError, match="is not a run folder"):
        mast.report(tmp_path / "none")
    with pytest.raises(UserError, match="has no evaluations to stand beside others"):
        mast.report(run.path, beside=[str(run.path)])
