"""Checkpoints that changed on the disk are noticed, and the one before is used."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import configure

import mast
from mast.config import change, deciding, record
from mast.core.checkpoint import load_checkpoint, previous, save_checkpoint
from mast.core.errors import UserError
from mast.core.run import RunFolder

Configure = Callable[..., mast.PretrainConfig]


def flipped(path: Path) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def without_numbers(path: Path) -> None:
    """Whole, but a weight is not a number."""
    state = load_checkpoint(path)
    next(iter(state["module"].values())).fill_(float("nan"))
    torch.save(state, path)


def of_something_else(path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": {}}, path)


DAMAGES = (flipped, without_numbers, of_something_else)


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
    flipped(begun.last)
    mast.pretrain(tiny(checkpoint_minutes=60.0, out=str(begun.path)))
    assert previous(begun.last).read_bytes() == used
    assert load_checkpoint(begun.last)["step"] == load_checkpoint(previous(begun.last))["step"]


def test_where_both_are_damaged_a_run_stops(begun: RunFolder, tiny: Configure) -> None:
    for file in (begun.last, previous(begun.last)):
        flipped(file)
    with pytest.raises(UserError, match=r"last\.previous\.pt .*changed since it was written"):
        mast.pretrain(tiny(checkpoint_minutes=0.0, out=str(begun.path)))
    assert not begun.encoder.exists()


@pytest.mark.parametrize(
    ("field", "value"), [("optimizer.lr", 0.5), ("encoder.options", {"layers": [1, 1, 1, 1]})]
)
def test_an_edited_configuration_is_not_gone_on_with(
    begun: RunFolder, tiny: Configure, field: str, value: Any
) -> None:
    config = tiny(checkpoint_minutes=0.0, out=str(begun.path))
    before = deciding(config)
    config = change(config, {field: value})
    begun.config.write_text(yaml.safe_dump(record(config)))
    log = begun.metrics.read_bytes()
    with pytest.raises(UserError, match=rf"{field}.*: .*begun has .*last\.pt.*") as caught:
        mast.pretrain(config)
    (name,) = (name for name, old in before.items() if deciding(config).get(name) != old)
    assert str(caught.value).startswith(f"{name}: ")
    assert f"has {deciding(config).get(name)!r}" in str(caught.value)
    assert f"{before[name]!r}" in str(caught.value)
    assert begun.metrics.read_bytes() == log


def test_every_bit_of_a_checkpoint_counts(tmp_path: Path) -> None:
    """Whatever byte is damaged, it is noticed, or changes nothing of what is read."""
    state = {"weights": torch.arange(64.0), "step": 3}
    path = tmp_path / "last.pt"
    save_checkpoint(path, state)
    whole = path.read_bytes()
    read = 0
    for at in range(0, len(whole), 7):
        content = bytearray(whole)
        content[at] ^= 0x55
        path.write_bytes(content)
        try:
            loaded = load_checkpoint(path)
        except UserError:
            continue
        read += 1
        assert torch.equal(loaded["weights"], state["weights"]), at
        assert loaded["step"] == 3
    assert read < len(whole) // 7 // 2  # padding between records, and dates
