"""Whatever the files of a run folder hold: a page without it, which loads and runs nothing."""

import json
import math
import shutil
import zipfile
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import Page, look_into, make_run

import mast
from mast.analyses import read_arrays
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.evaluation.result import Result, TargetResult

HOSTILE = "</script><script>alert(1)</script>\"' onload=x {{ 7*7 }}\x1b\u202e"


@pytest.fixture(scope="module")
def looked_into(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with one analysis, which has images."""
    run = make_run(tmp_path_factory.mktemp("run") / "run")
    look_into(run, ("neighbours",))
    return run


@pytest.fixture
def run(looked_into: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of it, to write into."""
    return RunFolder(shutil.copytree(looked_into.path, tmp_path / "run"))


def declared(descr: str, shape: str) -> bytes:
    """An array of NumPy's format whose header declares what does not follow."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


ARRAYS: dict[str, Any] = {
    "missing": None,
    "of another shape": np.zeros((2, 3, 4)),
    "of objects": np.array([print], object),
    "larger than any memory": declared("<f8", "(1000000000000,)"),
    "no array": b"text",
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_page_is_written_without_an_analysis_of_other_arrays(run: RunFolder, kind: str) -> None:
    file = run.analysis / "neighbours.npz"
    with np.load(file) as archive:
        whole = dict(archive)
    others, content = {name: whole[name] for name in whole if name != "pictures"}, ARRAYS[kind]
    if isinstance(content, np.ndarray):
        others["pictures"] = content
    np.savez(file, **others)
    if isinstance(content, bytes):
        with zipfile.ZipFile(file, "a") as members:
            members.writestr("pictures" if kind == "no array" else "pictures.npy", content)
    page = unescape(mast.report(run.path).read_text())
    assert f"{file} is damaged, or of another version (" in page
    assert "data:image/jpeg" not in page
    with pytest.raises(UserError, match=r"neighbours\.npz is damaged, or of another version"):
        mast.draw(run.path, "neighbours")


def test_arrays_that_would_fill_the_memory_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bomb.npz"
    np.savez_compressed(file, x=np.zeros(10_000_000, np.uint8))
    assert file.stat().st_size < 20_000
    assert len(read_arrays(file)["x"]) == 10_000_000
    monkeypatch.setattr("mast.analyses.analysis.machine_memory", lambda: 30_000_000)
    with pytest.raises(UserError, match=r"bomb\.npz .* when unpacked"):
        read_arrays(file)


def test_a_figure_is_an_image_whatever_it_holds(run: RunFolder) -> None:
    file = run.analysis / "neighbours.svg"
    file.write_text(file.read_text().replace("</svg>", "<script>canary()</script></svg>"))
    page = mast.report(run.path).read_text()
    assert "canary" not in page
    assert {"img", "figure"} <= {*Page(page).tags}
    assert not {"svg", "script"} & {*Page(page).tags}


WHOLE = {"step": 3, "epoch": 1.5, "loss": 2.0, "seconds": 80.0}
LINES = (
    *({**WHOLE, "step": step} for step in ("3", None, -1, True, 10**400)),
    *({**WHOLE, "epoch": epoch} for epoch in ("1", math.nan, math.inf, -1.0, 1e300)),
    *({**WHOLE, "loss": loss} for loss in (None, True, {})),
    {**WHOLE, "warning": 3},
    {"epoch": 1.0, "loss": 1.0},
)


def test_lines_of_the_log_that_mean_nothing_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path / "run")
    before = run.read_metrics()
    for line in LINES:
        run.append_metrics(line)
    assert run.read_metrics() == before
    (said,) = caplog.messages
    assert said == f"{run.metrics}: {len(LINES)} damaged lines are left out"


def test_what_other_files_say_is_text(run: RunFolder) -> None:
    facts = {
        "data": {"images": 48, "spec": HOSTILE, "fingerprint": HOSTILE},
        "versions": {HOSTILE: HOSTILE},
        "processes": 1,
        **dict.fromkeys(("seed", "device", "precision", "processor", "git_revision"), HOSTILE),
        "cores": {HOSTILE: [HOSTILE]},
    }
    run.provenance.write_text(json.dumps(facts))
    (run.analysis / "missing.json").write_text(json.dumps({"masks": HOSTILE, HOSTILE: HOSTILE}))
    values = TargetResult({"top1": 50.0, HOSTILE: 3.0, f"precision_{HOSTILE}": 4.0})
    settings = {"protocol": {"seed": 0, "resamples": 20, HOSTILE: HOSTILE}}
    for protocol in ("linear", "retrieval"):
        Result(protocol, HOSTILE, {HOSTILE: values}, settings, {HOSTILE: HOSTILE}, {},
               duplicates={HOSTILE: 3}).write(run.path)  # fmt: skip
    page = mast.report(run.path).read_text()
    assert page.count("&lt;/script&gt;") > 10
    assert "script" not in Page(page).tags
    assert "{{ 7*7 }}" in page  # nothing is a template
    assert "\x1b" not in page
    assert "\u202e" not in page
