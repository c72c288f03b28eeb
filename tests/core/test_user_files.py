"""What users name is read whole or refused in a line, and never waited for."""

import os
from pathlib import Path

import pytest
import yaml

from mast.config import load_yaml, record
from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import as_unicode, read_json
from mast.recipes import RECIPES


@pytest.mark.usefixtures("in_time")
def test_a_pipe_a_device_and_a_folder_are_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "folder.yaml").mkdir()
    for name, kind in (("pipe", "named pipe"), ("zero", "device"), ("folder", "folder")):
        with pytest.raises(UserError, match=rf"{name}\.yaml is a {kind}: expected a file"):
            load_yaml(tmp_path / f"{name}.yaml")


@pytest.mark.usefixtures("in_time")
def test_a_bomb_of_aliases_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"bomb\.yaml, line 2: aliases are not read here; .*\*a0"):
        load_yaml(file)


def test_a_field_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("optimizer:\n  lr: 1\n  'lr': 2\n")
    with pytest.raises(UserError, match=r"mine\.yaml, line 3: lr is given twice, first in line 2"):
        load_yaml(file)
    file.write_text("\ufeffoptimizer: {lr: 1}\nobjective: {lr: 1}\n")  # with a byte order mark
    assert load_yaml(file) == {"optimizer": {"lr": 1}, "objective": {"lr": 1}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"out: \xff\n", "is not UTF-8 text: invalid start byte at byte 5"),
        (b"[" * 2_000, "is nested too deeply|is not YAML"),
        (b"- epochs\n", "holds no fields"),
        (b"a: !!python/object/apply:os.getcwd []\n", "is not YAML"),
    ],
)
def test_a_configuration_that_is_none_is_named(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"mine\.yaml ({message})"):
        load_yaml(file)


def test_names_that_are_not_unicode_can_be_written(tmp_path: Path) -> None:
    name = b"\xff \xc3\xa9".decode("ascii", "surrogateescape")  # as under an ASCII locale
    assert as_unicode(name) == "\\xff é"
    assert as_unicode("\ud800") == "\\ud800"  # half a character, which JSON may hold
    write_text(tmp_path / "page.html", f"<p>{name} ×")
    assert (tmp_path / "page.html").read_bytes() == "<p>\\xff é ×".encode()


def test_what_a_run_writes_has_no_aliases() -> None:
    """YAML has them where one list stands in two places; then a run could not be read."""
    for make in RECIPES.values():
        assert "&" not in yaml.safe_dump(record(make()))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a": 1e400}',
        '{"a": NaN}',
        '{"a": ' + "1" * 400 + "}",
        '{"a": 1, "b": 2, "a": 1}',
    ],
)
def test_json_that_says_two_things_or_nothing_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "it.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"it\.json is damaged: it (is not JSON|has the)"):
        read_json(file)
    file.write_text(f'{{"a": [1.5, -3, {2**63}, "NaN", null], "b": {{"a": 1}}}}')
    assert read_json(file) == {"a": [1.5, -3, 2**63, "NaN", None], "b": {"a": 1}}
