"""Files that changed on the disk are noticed by what they say of themselves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mast
from mast.config import read
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.evaluation.accuracy import correct_within
from mast.evaluation.result import Result, TargetResult
from mast.runs.load import load_method

TENSORS = {
    "a": torch.arange(12.0).view(3, 4),
    "b.half": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "flags": torch.tensor([True, False]),
    "none": torch.empty(0, 2),
    "nothing": torch.from_numpy(np.empty(0, np.float32)),  # with a stride of 0
}


def test_every_byte_of_a_file_counts(tmp_path: Path) -> None:
    """Whatever byte is damaged, it is noticed, or changes nothing of what is read."""
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS, {"size": 32}, {"for": "others"})
    whole = path.read_bytes()
    assert all(torch.equal(value, TENSORS[name]) for name, value in load_file(path).items())
    read = []
    for at in range(len(whole)):
        content = bytearray(whole)
        content[at] ^= 1
        path.write_bytes(content)
        try:
            tensors, header = read_tensors(path)
        except UserError:
            continue
        read.append(at)
        assert tensors.keys() == TENSORS.keys()
        assert all(torch.equal(value, TENSORS[name]) for name, value in tensors.items())
        assert read_metadata(header).get("size", 32) == 32
    names = len("mast") + len("sha256")
    assert len(read) <= names, "only where the digest itself is no longer found"


def test_the_same_tensors_are_the_same_file(tmp_path: Path) -> None:
    """safetensors writes the entries of a header in any order: there must be one."""
    for name in "abcd":
        write_tensors(tmp_path / name, TENSORS, {"b": 1, "a": 2})
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1


def test_a_damaged_weight_is_noticed_and_written_again(ours: RunFolder) -> None:
    for file in (ours.encoder, ours.embedding):
        whole = file.read_bytes()
        file.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
        with pytest.raises(UserError, match=rf"{file.name} is damaged.*`mast pretrain`"):
            load_method(ours.path)
        ours.encoder.unlink()  # which says that the run is complete
        mast.pretrain(replace(read(ours.config), out=ours.path))
        assert file.read_bytes() == whole


RESULT: dict[str, Any] = {
    "protocol": "knn", "set_name": "a", "settings": {"k": 20}, "fingerprints": {}, "sizes": {},
}  # fmt: skip


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """The file of a result, with what each image contributed beside it."""
    each = {"top1": torch.tensor([1.0, 0.0, 1.0, 1.0])}
    values = {"top1": 75.0, "top1_low": 60.0}
    return Result(targets={"class": TargetResult(values, each=each)}, **RESULT).write(tmp_path)


def test_a_changed_result_is_refused(result: Path) -> None:
    written = result.read_text()
    for before, now in (('"top1_low": 60.0', '"top1_low": 61.0'), ('"k": 20', '"k": 21')):
        result.write_text(written.replace(before, now))
        with pytest.raises(UserError, match="is not what was written: evaluate again"):
            Result.read(result)
    result.write_text(written)
    each = result.parent / "each" / f"{result.stem}.safetensors"
    content = bytearray(each.read_bytes())
    content[-16:-8], content[-8:] = content[-8:], content[-16:-8]  # another order, the same mean
    each.write_bytes(content)
    with pytest.raises(UserError, match="its digest does not match: evaluate again"):
        Result.read(result)


def test_a_score_that_is_not_finite_is_no_hit() -> None:
    scores_NC = torch.tensor([[0.1, 0.9], [float("nan"), 0.5]])
    with pytest.raises(UserError, match="class scores of 1 of 2 images are not finite"):
        correct_within(scores_NC, torch.tensor([1, 0]), k=1)
