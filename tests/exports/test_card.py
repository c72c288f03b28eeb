"""The model card of an export: names are text in it, whatever Markdown would make of them."""

from pathlib import Path

import pytest
import torch
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pages import make_run
from tiny import ENCODER
from torch import nn

from mast.evaluation.result import Result, TargetResult
from mast.exports import FORMATS
from mast.exports.card import card
from mast.exports.original import Original
from mast.models import Classifier, Encoder

NAMES = (
    "[a](http://x.example)",
    "![b](http://x.example/b.png)",
    "<img src=x onerror=alert(1)> &lt;",
    "`c` *d* _e_ ~~f~~ $g$ h_i",
    "| j | k \\| l",
    "m\n\n# n\n---\nlicense: mit",
    "http://x.example www.x.example <http://x.example>",
    "o\x1b[31m\u202e",
)


def read(text: str) -> tuple[dict[str, object], list[Token]]:
    """The YAML of a card, and its Markdown as the Hub renders it, with links that nobody marked."""
    before, front, body = text.split("---\n", 2)
    assert before == ""
    assert "http://" not in body  # of which some renderers make a link without any markup
    assert "www." not in body
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(body)
    return yaml.safe_load(front), [one for token in tokens for one in (token.children or [token])]


def shown(tokens: list[Token]) -> str:
    assert {token.type for token in tokens}.isdisjoint(
        {"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "s_open"}
    )
    return "".join(token.content for token in tokens if token.type == "text")


def as_shown(name: str) -> str:
    return name.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(ENCODER, 32).eval()


def test_class_names_are_text(encoder: Encoder) -> None:
    original = Original(encoder, Classifier(encoder, nn.Linear(encoder.dim, 8), NAMES, 32))
    form = FORMATS["pt2"].kind(original)
    for title in NAMES:
        text = card(title, form, original, license="x\n---\n# y")
        front, tokens = read(text)
        assert front["license"] == "x\\n---\\n# y"
        assert set(front) == {"pipeline_tag", "license", "tags"}
        assert ", ".join(map(as_shown, NAMES)) in shown(tokens)
        heading = next(at for at, token in enumerate(tokens) if token.type == "heading_open")
        assert shown(tokens[heading : heading + 30]).startswith(as_shown(title))
        assert sum(token.type == "fence" for token in tokens) == 2


def test_what_was_measured_is_a_table_of_text(encoder: Encoder, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    original = Original(encoder)
    targets = {name: TargetResult({"top1": 50.0}) for name in NAMES}
    settings = {"protocol": {"seed": 0}, "extraction": {"size": 32}}
    known = {"fingerprint": original.fingerprint()}
    Result("knn", "photos/test", targets, settings, {}, {"test": 4}, "i", encoder=known).write(
        run.path
    )
    form = FORMATS["pt2"].kind(original)
    text = card("t", form, original, run, known["fingerprint"])
    learned = card("t", form, original, make_run(tmp_path / "it", "supervised_small"))
    assert "pretrained with labels" in learned
    assert "self-supervised" not in learned
    _, tokens = read(text)
    cells = [
        shown(tokens[at + 1 : at + 2 + next(
            n for n, token in enumerate(tokens[at + 1 :]) if token.type == "td_close")])
        for at, token in enumerate(tokens)
        if token.type == "td_open"
    ]  # fmt: skip
    for name in NAMES:
        assert as_shown(name) in cells
    rows = sum(token.type == "tr_open" for token in tokens)
    assert sum(token.type == "table_open" for token in tokens) == 2
    assert len(cells) == 7 * len(NAMES) + 2 * (rows - 2 - len(NAMES))
