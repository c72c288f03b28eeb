"""What users name is read whole or refused in a line, and never waited for."""

import os
from pathlib import Path

import pytest

from mast.config import load_yaml
from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import as_unicode, read_json


@pytest.mark.usefixtures("in_time")
def test_a_pipe_a_device_and_a_folder_are_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "folder.yaml").mkdir()
    for name, kind in (("pipe", "device or a pipe"), ("zero", "device"), ("folder", "folder")):
        with pytest.raises(UserError, match=rf"{name}\.yaml is a {kind}.*: expected a file"):
            load_yaml(tmp_path / f"{name}.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"out: \xff\n", "is not UTF-8 text: invalid start byte at byte 5"),
        (b"[" * 2_000, "is not YAML"),
        (b"- epochs\n", ": expected fields"),
        (b"a: &a [1]\nb: [*a, *a]\n", "has YAML aliases"),
        (b"a: !!python/object/apply:os.getcwd []\n", "is not YAML"),
    ],
)
def test_a_configuration_that_is_none_is_named(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"mine\.yaml ?({message})"):
        load_yaml(file)


def test_names_that_are_not_unicode_can_be_written(tmp_path: Path) -> None:
    name = b"\xff \xc3\xa9".decode("ascii", "surrogateescape")  # as under an ASCII locale
    assert as_unicode(name) == "\\xff é"
    assert as_unicode("\ud800") == "\\ud800"  # half a character, which JSON may hold
    write_text(tmp_path / "page.html", f"<p>{name} ×")
    assert (tmp_path / "page.html").read_bytes() == "<p>\\xff é ×".encode()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": 1e400}', '{"a": NaN}'])
def test_json_without_a_finite_value_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "it.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"it\.json is damaged: it (is not JSON|has the)"):
        read_json(file)
    file.write_text(f'{{"a": [1.5, -3, {2**63}, "NaN", null], "b": {{"a": 1}}}}')
    assert read_json(file) == {"a": [1.5, -3, 2**63, "NaN", None], "b": {"a": 1}}
