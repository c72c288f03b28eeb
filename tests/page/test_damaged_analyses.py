"""Whatever the files of a run folder hold: a page without it, which loads and runs nothing."""

import json
import math
import zipfile
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from pages import Page, look_into, make_run

import mast
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.evaluation.result import Result, TargetResult

HOSTILE = "</script><script>alert(1)</script>\"' onload=x {{ 7*7 }}\x1b\u202e"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with one analysis, which has images."""
    run = make_run(tmp_path / "run")
    look_into(run, ("neighbours",))
    return run


def test_a_page_is_written_without_an_analysis_of_other_arrays(run: RunFolder) -> None:
    file = run.analysis / "neighbours.npz"
    with np.load(file) as archive:
        whole = dict(archive)
    others = {name: whole[name] for name in whole if name != "pictures"}
    for wrong in (None, np.zeros((2, 3, 4)), np.array([print], object), b"text"):
        np.savez(file, **others, **({"pictures": wrong} if isinstance(wrong, np.ndarray) else {}))
        if isinstance(wrong, bytes):
            with zipfile.ZipFile(file, "a") as members:
                members.writestr("pictures.npy", wrong)
        page = unescape(mast.report(run.path).read_text())
        assert f"{file} is damaged, or of another version (" in page
        assert "data:image/jpeg" not in page
        with pytest.raises(UserError, match=r"neighbours\.npz is damaged, or of another version"):
            mast.draw(run.path, "neighbours")


def test_lines_of_the_log_that_mean_nothing_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, whole = make_run(tmp_path / "run"), {"step": 3, "epoch": 1.5, "loss": 2.0}
    before = run.read_metrics()
    wrong = {
        "step": ("3", None, -1, True, 10**400),
        "epoch": ("1", math.nan, math.inf, -1.0, 1e300),
        "loss": (None, True, {}),
        "warning": (3,),
    }
    lines = [{**whole, name: value} for name, values in wrong.items() for value in values]
    lines.append({"epoch": 1.0, "loss": 1.0})
    for line in lines:
        run.append_metrics(line)
    assert run.read_metrics() == before
    assert caplog.messages == [f"{run.metrics}: skipped {len(lines)} damaged lines"]


def test_what_other_files_say_is_text(run: RunFolder) -> None:
    figure = run.analysis / "neighbours.svg"
    figure.write_text(figure.read_text().replace("</svg>", "<script>canary()</script></svg>"))
    facts = {
        "data": {"images": 48, "spec": HOSTILE, "fingerprint": HOSTILE},
        "versions": {HOSTILE: HOSTILE},
        "cores": {HOSTILE: [HOSTILE]},
        "device": HOSTILE,
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
    assert {"img", "figure"} <= {*Page(page).tags}
    assert not {"svg", "script"} & {*Page(page).tags}
    assert "{{ 7*7 }}" in page  # nothing is a template
    assert not {"\x1b", "\u202e"} & {*page}
    assert "canary" not in page
