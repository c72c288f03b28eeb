"""Checkpoints that changed on the disk are noticed, and the one before is used."""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import configure

import mast
from mast.config import change, deciding, record
from mast.core.checkpoint import load_checkpoint, previous
from mast.core.errors import UserError
from mast.core.loop import Training
from mast.core.run import RunFolder

Configure = Callable[..., mast.PretrainConfig]


def zeroed(path: Path) -> None:
    """512 bytes in the middle of the largest weight."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    content = bytearray(path.read_bytes())
    at = largest.header_offset + largest.file_size // 2
    assert any(content[at : at + 512])
    content[at : at + 512] = bytes(512)
    path.write_bytes(content)


def flipped(path: Path) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def without_numbers(path: Path) -> None:
    """Whole, but a weight is not a number."""
    state = load_checkpoint(path)
    next(iter(state["module"].values())).fill_(float("nan"))
    torch.save(state, path)


def of_something_else(path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": {}}, path)


DAMAGES = (flipped, cut_short, without_numbers, of_something_else)


@pytest.fixture(scope="module")
def ended(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("ended") / "begun"
    return mast.pretrain(configure(photos, folder, checkpoint_minutes=0.0))


@pytest.fixture
def begun(ended: RunFolder, tmp_path: Path) -> RunFolder:
    """A run whose encoder is missing: it continues from its last checkpoint."""
    run = RunFolder(shutil.copytree(ended.path, tmp_path / "begun"))
    run.encoder.rename(run.path / "expected")
    return run


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    begun: RunFolder, tiny: Configure, damage: Callable[[Path], None], caplog: Any
) -> None:
    damage(begun.last)
    mast.pretrain(tiny(checkpoint_minutes=0.0, out=str(begun.path)))
    (line,) = (record.message for record in caplog.records if "last.pt" in record.message)
    assert "The one before it is used" in line
    assert begun.encoder.read_bytes() == (begun.path / "expected").read_bytes()


def test_a_damaged_checkpoint_never_takes_the_place_of_a_whole_one(
    begun: RunFolder, tiny: Configure
) -> None:
    """The end of the run saves once: what was used is still there beside it."""
    used = previous(begun.last).read_bytes()
    zeroed(begun.last)
    mast.pretrain(tiny(checkpoint_minutes=60.0, out=str(begun.path)))
    assert previous(begun.last).read_bytes() == used
    assert load_checkpoint(begun.last)["step"] == load_checkpoint(previous(begun.last))["step"]


def test_where_both_are_damaged_a_run_stops(begun: RunFolder, tiny: Configure) -> None:
    for file in (begun.last, previous(begun.last)):
        zeroed(file)
    with pytest.raises(UserError, match=r"last\.previous\.pt .*changed since it was written"):
        mast.pretrain(tiny(checkpoint_minutes=0.0, out=str(begun.path)))
    assert not begun.encoder.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optimizer.lr", 0.5),
        ("encoder.options", {"layers": [1, 1, 1, 1]}),
    ],
)
def test_an_edited_configuration_is_not_gone_on_with(
    begun: RunFolder, tiny: Configure, field: str, value: Any
) -> None:
    config = tiny(checkpoint_minutes=0.0, out=str(begun.path))
    before = deciding(config)
    config = change(config, {field: value})
    begun.config.write_text(yaml.safe_dump(record(config)))
    log = begun.metrics.read_bytes()
    with pytest.raises(UserError, match=rf"config\.yaml has {field}.*=.*last\.pt.*") as caught:
        mast.pretrain(config)
    (name,) = (name for name, old in before.items() if deciding(config).get(name) != old)
    assert f"{name}={deciding(config).get(name)!r}" in str(caught.value)
    assert f"{before[name]!r}" in str(caught.value)
    assert begun.metrics.read_bytes() == log


def test_what_does_not_change_the_result_may_be_edited(begun: RunFolder, tiny: Configure) -> None:
    config = tiny(checkpoint_minutes=5.0, log_every=1, out=str(begun.path))
    begun.config.write_text(yaml.safe_dump(record(config)))
    mast.pretrain(config)
    assert begun.encoder.read_bytes() == (begun.path / "expected").read_bytes()


@pytest.mark.parametrize("name", ["module", "optimizer", "kept", "rng"])
def test_a_field_that_cannot_be_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    training(file, steps=4).save()
    state = load_checkpoint(file)
    for wrong in (state | {name: None}, {key: state[key] for key in state.keys() - {name}}):
        torch.save(wrong, file)
        with pytest.raises(UserError, match=r"last\.pt is not a checkpoint of this training"):
            training(file, steps=4).resume(0)


def training(file: Path, steps: int) -> Training:
    """Of a single number."""
    module = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD([{"params": module.parameters(), "peak_lr": 0.1}], 0.1)
    return Training(module, optimizer, 1, steps, lambda progress: 1.0, checkpoint=file)
