"""Features, how they are computed and by whom."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tiny_evaluation import tiny_set, working_in
from torch import Tensor, nn

from mast.augment import center_views
from mast.core.bench import Bench
from mast.core.compute import Compute
from mast.core.errors import UserError
from mast.encoders.changes import changed_by
from mast.encoders.extract import extract, represent
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData


def test_order_and_values(encoder: nn.Module) -> None:
    canvases = tiny_set(9)
    features = extract(encoder, canvases, 16, Compute(batch_size=7))
    encoder.eval()
    expected = encoder(center_views(canvases.batch(range(27)), 16)).detach()
    torch.testing.assert_close(features, expected)
    assert features.dtype is torch.float32
    assert not features.is_inference()


def test_modes_and_statistics_are_restored(encoder: nn.Module) -> None:
    encoder.train()
    encoder.norm.eval()  # frozen on purpose
    before = encoder.norm.running_mean.clone()
    extract(encoder, tiny_set(3), 16)
    assert encoder.training
    assert not encoder.norm.training
    assert torch.equal(encoder.norm.running_mean, before)
    failing = nn.Module().train()  # without a method forward
    with pytest.raises(NotImplementedError):
        extract(failing, tiny_set(3), 16)
    assert failing.training


class Constant(nn.Module):
    """Whatever the images, the same output."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.output


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (torch.ones(9, 3, 4, 4), r"shape \(9, D\).*, got a tensor of shape \(9, 3, 4, 4\)"),
        (torch.ones(9, 4, dtype=torch.int64), r"floats .*\(9, D\).*, got .* torch\.int64"),
        (torch.ones(9, 0), r"D 1 or more.*, got a tensor of shape \(9, 0\)"),
        *(
            (
                F.pad(torch.tensor([[bad]]), (1, 1, 2, 6), value=1),
                r"beyond 1e\+15 for 1 of 9 .*2\.png",
            )
            for bad in (torch.nan, 1e25)
        ),
    ],
)
def test_what_are_no_numbers_to_compare_is_refused(output: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        extract(Constant(output), tiny_set(3), 16)


def test_a_change_does_not_depend_on_batches() -> None:
    images = torch.rand(6, 3, 32, 32)
    change = changed_by("rotate", 0.6, 32, 6, seed=1)
    whole = change.apply(images, torch.arange(6))
    parts = [change.apply(images[i : i + 2], torch.arange(i, i + 2)) for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)


def test_float32_is_without_tf32_and_the_setting_comes_back() -> None:
    settings = torch.backends.cudnn, torch.backends.cuda.matmul
    seen: list[list[bool]] = []

    class Looks(nn.Module):
        def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
            seen.append([setting.allow_tf32 for setting in settings])
            return images_BCHW.flatten(1)

    before = [setting.allow_tf32 for setting in settings]
    for dtype in (torch.float32, torch.bfloat16):
        represent(Looks(), torch.rand(2, 3, 4, 4), dtype)
    assert seen == [[False, False], before]
    assert [setting.allow_tf32 for setting in settings] == before
    assert before[0], "PyTorch's default for convolutions"


def test_an_encoder_alone_has_no_other_representation(encoder: nn.Module) -> None:
    with pytest.raises(UserError, match="the embedding needs a run folder of `mast`"):
        FrozenEncoder(encoder).representation("embedding")


def test_unfinished_work_is_known_by_what_it_depends_on(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    bench = Bench(Compute(), tmp_path)
    frozen = FrozenEncoder(encoder, bench=bench)
    half = FrozenEncoder(encoder, Compute(dtype=torch.bfloat16), bench=bench)
    other = FrozenEncoder(nn.Linear(2, 2), bench=bench)
    paths = [
        frozen.unfinished("protocol", data, rate=1),
        frozen.unfinished("protocol", data, rate=2),
        frozen.unfinished("another", data, rate=1),
        half.unfinished("protocol", data, rate=1),
        other.unfinished("protocol", data, rate=1),
    ]
    assert len(set(paths)) == len(paths)
    assert working_in(tmp_path, encoder).unfinished("protocol", data, rate=1) in paths
    assert FrozenEncoder(encoder).unfinished("protocol", data) is None
    left = tmp_path / "unfinished" / "of other settings.pt"
    left.parent.mkdir()
    for path in (*paths[:2], left):
        path.touch()
    bench.finish()
    assert list(left.parent.iterdir()) == [left]
