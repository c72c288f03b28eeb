"""Views in other training loops: those of pretraining, in whatever form the images come."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import mast
from mast.augment import draw_views
from mast.core.errors import UserError
from mast.data import open_canvas
from mast.data.loader import Loader
from mast.views import Canvas

SIZE = 32
BLANK, FORTY = torch.zeros(2, 4800, dtype=torch.uint8), torch.full((2, 2), 40)
DOCUMENT = Path(__file__).parent.parent / "docs" / "extending.md"


@pytest.fixture
def make() -> mast.ViewMaker:
    return mast.ViewMaker("mast5", SIZE, seed=3)


@pytest.fixture
def images_BHWC() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (4, 40, 40, 3), dtype=torch.uint8, generator=generator)


def same(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> bool:
    return all(map(torch.equal, first, second)) and len(first) == len(second)


def test_they_are_those_of_pretraining(
    make: mast.ViewMaker,
    photos: Path,
    tiny: Callable[..., mast.PretrainConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Tensor, ...]] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        views = draw_views(*arguments, **options)
        seen.append(tuple(map(torch.clone, views.images)))  # their memory is used again
        return views

    monkeypatch.setattr("mast.runs.pretraining.draw_views", watched)
    config = tiny(seed=3, views="mast5", schedule={"staged": False}, precision="float32")
    mast.pretrain(config)
    canvases = open_canvas(config.data, SIZE)
    order = Loader(canvases, config.batch_size, seed=3)
    assert len(seen) == 2 * order.steps_per_epoch == 6
    for step, expected in enumerate(seen):
        index_B = next(order.epoch(*divmod(step, order.steps_per_epoch))).index_B.numpy()
        paths = [photos / "train" / canvases.identifiers[index] for index in index_B]
        assert same(make(paths), expected)
        assert make.step == step + 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork beside threads
def test_the_number_of_workers_changes_nothing(make: mast.ViewMaker, photos: Path) -> None:
    folder = ImageFolder(str(photos / "train"), loader=make.to_canvas)
    epochs = []
    for workers in (0, 2):
        loader = DataLoader(folder, batch_size=12, num_workers=workers)
        epochs.append([make(canvases, step) for step, (canvases, _) in enumerate(loader)])
    assert all(map(same, *epochs))
    assert len(epochs[1]) == 4


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_worker_makes_no_views(make: mast.ViewMaker, photos: Path) -> None:
    folder = ImageFolder(str(photos / "train"), loader=make.to_canvas)

    def collate(samples: list[Any]) -> Any:
        return make(Canvas(*map(torch.stack, zip(*(canvas for canvas, _ in samples), strict=True))))

    with pytest.raises(UserError, match="step: required in a worker of a DataLoader"):
        next(iter(DataLoader(folder, batch_size=4, num_workers=1, collate_fn=collate)))


def test_seed_and_step_decide(make: mast.ViewMaker, images_BHWC: Tensor) -> None:
    counted = [make(images_BHWC) for _ in range(3)]
    named = [mast.ViewMaker("mast5", SIZE, seed=3)(images_BHWC, step) for step in range(3)]
    assert all(map(same, counted, named))
    assert make.step == 3
    assert not same(counted[0], counted[1])
    assert not same(counted[0], mast.ViewMaker("mast5", SIZE, seed=4)(images_BHWC, 0))
    assert same(make(images_BHWC, 1), counted[1])
    assert make.step == 2  # it goes on from there


def test_the_form_of_the_images_changes_nothing(make: mast.ViewMaker, images_BHWC: Tensor) -> None:
    expected = make(images_BHWC, 0)
    images_BCHW = images_BHWC.permute(0, 3, 1, 2)
    canvases = Canvas(images_BHWC.flatten(1), torch.full((4, 2), 40), torch.ones(4))
    for images in (images_BCHW, images_BHWC / 255, images_BCHW / 255, canvases):
        assert same(make(images, 0), expected)


def test_large_images_are_shrunk_as_by_the_loader(images_BHWC: Tensor) -> None:
    make = mast.ViewMaker("mast5", SIZE, canvas=24)
    wide_BHWC = images_BHWC[:, 5:35]  # 40 x 30 pixels
    pictures = [Image.fromarray(image.numpy()) for image in wide_BHWC]
    resized = [picture.resize((27, 21), Image.Resampling.LANCZOS) for picture in pictures]
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture in resized]))
    sizes, aspect = torch.tensor([[21, 27]] * 4), torch.full((4,), 4 / 3)
    expected = make(Canvas(pixels.flatten(1), sizes, aspect), 0)
    others = [np.asarray(pictures[0]), pictures[1], wide_BHWC[2].permute(2, 0, 1), wide_BHWC[3]]
    for images in (pictures, others):
        assert same(make(images, 0), expected)
    sizes = [*pictures[:1], Image.new("RGB", (9, 50)), Image.new("L", (24, 24))]
    assert make(sizes, 0)[0].shape == (3, 3, SIZE, SIZE)


def test_a_path_is_read_as_the_loader_reads_it(tmp_path: Path) -> None:
    """Turned, transparent and large images are where pipelines on PIL images differ."""
    make = mast.ViewMaker("mast5", SIZE)
    pixels = np.random.default_rng(0).integers(0, 255, (300, 200, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=exif)
    clear = np.dstack([pixels, np.zeros((300, 200), np.uint8)])
    Image.fromarray(clear).save(tmp_path / "clear.png")
    canvases = open_canvas(str(tmp_path), SIZE)
    batch = canvases.batch(range(2))
    for at, name in enumerate(canvases.identifiers):
        canvas = make.to_canvas(tmp_path / name)
        expected = batch.image(at).flatten()
        assert torch.equal(canvas.pixels[: len(expected)], expected)
        assert torch.equal(canvas.size, batch.size_B2[at])
        assert torch.equal(canvas.aspect, batch.aspect_B[at])
    assert batch.aspect_B.tolist() == pytest.approx([2 / 3, 1.5], abs=1e-6)
    with pytest.raises(UserError, match=r"lost\.png: .*replace or remove this file"):
        make.to_canvas(tmp_path / "lost.png")


def test_views_in_the_same_memory(images_BHWC: Tensor) -> None:
    plain, reusing = (mast.ViewMaker("vicreg", SIZE, reuse=reuse) for reuse in (False, True))
    places = set()
    for step in range(2):
        views = reusing(images_BHWC, step)
        assert same(views, plain(images_BHWC, step))
        places.add(views[0].data_ptr())
    assert len(places) == 1
    assert reusing(images_BHWC[:3], 2)[0].shape == (3, 3, SIZE, SIZE)


def test_processes_draw_their_parts(
    make: mast.ViewMaker, images_BHWC: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make(images_BHWC, 0)
    monkeypatch.setattr("mast.views.processes", lambda: 2)
    parts = []
    for rank, own in enumerate(images_BHWC.chunk(2)):
        monkeypatch.setattr("mast.views.rank", lambda rank=rank: rank)
        parts.append(make(own, 0))
    assert same(tuple(map(torch.cat, zip(*parts, strict=True))), expected)


def test_options_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"unknown views 'mast6'\. Did you mean 'mast5'"):
        mast.ViewMaker("mast6")
    with pytest.raises(UserError, match="side: expected 1 to"):
        mast.ViewMaker(canvas=-1)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 40, 40, 1), "got the shape (2, 40, 40, 1)"),
        (torch.full((2, 40, 40, 3), 255.0), "got 255 to 255: divide values of 0 to 255 by 255"),
        ([], "at least one image"),
        (Canvas(BLANK, FORTY + 1, torch.ones(2)), "got (2, 4800)"),
    ],
)
def test_images_that_are_none(make: mast.ViewMaker, images: Any, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        make(images)
    assert make.step == 0


def examples() -> dict[str, str]:
    """The Python of the document, by the heading above it."""
    section = "## Views in your own training loop"
    text = section + DOCUMENT.read_text().partition(section)[2]
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)[1:]
    blocks = zip(parts[::2], parts[1::2], strict=True)
    return {head: re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0] for head, text in blocks}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(
    "heading",
    [
        pytest.param(heading, marks=pytest.mark.slow if heading == "Lightning" else ())
        for heading in examples()
    ],
)
def test_the_examples_run(
    heading: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = examples()[heading]
    if "lightning" in example:
        pytest.importorskip("pytorch_lightning")
    (tmp_path / "photos").symlink_to(photos)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning, on the number of workers
        exec(example, names)
    if heading == "Lightning":
        assert names["trainer"].global_step == 3
    elif "loss" in names:
        assert names["make"].step == 3 * (1 + names.get("epoch", 0))
        assert names["loss"].isfinite()
    else:
        assert names["second"].shape == (8, 3, 64, 64)
