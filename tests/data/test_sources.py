"""Every source fulfils the contract: what it describes can be opened, and what is open holds."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from layouts import voc_object, write_coco, write_voc
from tiny import write_images

from mast.commands.shard import shard
from mast.core.errors import UserError
from mast.data import open_canvas, open_source
from mast.data.generated import Factors
from mast.data.registry import SOURCES, describe
from mast.data.source import Scheme, SetDescription


@dataclass(frozen=True)
class Row:
    """A set of a scheme, written to disk.

    Attributes:
        write: Writes what is needed below a folder, and returns the name of the whole set.
        tasks: The tasks of every part, with one class an image or several.
        metric: What is reported.
    """

    write: Callable[[Path], str | Path]
    tasks: tuple[str, ...] = ("class",)
    metric: str = "top1"


def folder(root):
    for part, count in (("train", 6), ("val", 3), ("test", 4)):
        write_images(root / part, count)
    return root


def coco(root):
    write_coco(root, "train2017")
    shutil.copytree(root / "train2017", root / "val2017", copy_function=shutil.copy)
    annotations = root / "annotations"
    shutil.copy(annotations / "instances_train2017.json", annotations / "instances_val2017.json")
    return f"coco:{root}"


def voc(root):
    for split in ("train", "val", "test"):
        write_voc(root, split, **{f"{split}1": voc_object("dog", (1, 1, 8, 6))})
    return f"voc:{root}"


def shards(root):
    for part in folder(root / "images").iterdir():
        shard(part, root / "shards" / part.name, size=24)
    return f"shards:{root / 'shards'}"


def listed(root):
    rows = ["path,label,split"]
    for part in folder(root).iterdir():
        rows += [f"{file.relative_to(root)},{at % 2},{part.name}"
                 for at, file in enumerate(sorted(part.rglob("*.*")))]  # fmt: skip
    (root / "photos.csv").write_text("\n".join(rows))
    return f"list:{root / 'photos.csv'}"


FACTORS = ("shape", "color", "orientation", "position", "texture", "sharpness")
ROWS = {
    "folder": Row(folder),
    "list": Row(listed),
    "factors": Row(lambda root: "factors:8", FACTORS),
    "toys": Row(lambda root: "toys:8", FACTORS),
    "torchvision": Row(lambda root: "torchvision:Tiny"),
    "hf": Row(lambda root: "hf:someone/pets", ("label",)),
    "coco": Row(coco, ("objects",), "mAP"),
    "voc": Row(voc, ("objects",), "mAP"),
    "shards": Row(shards),
}


@pytest.mark.parametrize("scheme", SOURCES)
@pytest.mark.usefixtures("tiny", "hub")
def test_conformance(scheme, tmp_path):
    row = ROWS[scheme]
    name = row.write(tmp_path / "set")
    described = describe(name)
    assert {"train", "test"} <= described.parts.keys() <= {"train", "val", "test"}
    assert described.metric == row.metric
    sources = {
        part: open_source(spec, root=str(tmp_path), download=True)
        for part, spec in described.parts.items()
    }
    assert len({source.name for source in sources.values()}) == len(sources)
    assert len({source.fingerprint() for source in sources.values()}) == len(sources)
    for part, source in sources.items():
        count = len(source)
        assert count > 0
        assert tuple({**source.targets, **source.multilabels}) == row.tasks == tuple(source.classes)
        for task, label_N in source.targets.items():
            assert (label_N.shape, label_N.dtype) == ((count,), np.int64)
            assert label_N.min() >= 0
            assert label_N.max() < len(source.classes[task])
        for task, label_NL in source.multilabels.items():
            assert label_NL.shape == (count, len(source.classes[task]))
            assert set(np.unique(label_NL)) <= {-1, 0, 1}
        assert len({source.identifier(index) for index in range(count)}) == count
        pixels_HW3 = source.load(count - 1)
        assert (pixels_HW3.dtype, pixels_HW3.shape[2]) == (np.uint8, 3)
        canvas_HW3, aspect = source.canvas(count - 1, 8)
        assert (canvas_HW3.dtype, canvas_HW3.shape[2]) == (np.uint8, 3)
        assert canvas_HW3.size <= 3 * 72
        assert aspect == pytest.approx(pixels_HW3.shape[1] / pixels_HW3.shape[0], rel=0.05)
        again = open_source(described.parts[part], root=tmp_path)
        assert again.fingerprint() == source.fingerprint()


def test_every_scheme_has_a_row_and_a_place_in_the_manual():
    assert ROWS.keys() == SOURCES.keys()
    manual = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    for word, scheme in SOURCES.items():
        assert scheme.examples
        for example in scheme.examples if word != "folder" else ():
            assert f"`{example}`" in manual
            assert example.startswith(word)


def test_a_row_is_all_that_a_scheme_needs(monkeypatch):
    row = Scheme(
        ("drawn:64",),
        lambda spec, root, download: Factors("train", int(spec.removeprefix("drawn:"))),
        lambda spec, root, download: SetDescription({"train": spec, "test": spec}),
    )
    monkeypatch.setitem(SOURCES, "drawn", row)
    assert describe("drawn:8").parts == {"train": "drawn:8", "test": "drawn:8"}
    assert len(open_source("drawn:8")) == 8
    assert len(open_canvas("drawn:8", 8)) == 8
    with pytest.raises(UserError, match="drawn:64"):
        open_source("nowhere")


def test_a_folder_may_be_called_as_a_scheme_is(tmp_path, monkeypatch):
    write_images(tmp_path / "coco", 2)
    monkeypatch.chdir(tmp_path)
    assert len(open_source("coco")) == len(open_canvas(Path("coco"), 8)) == 2
    assert describe("coco").parts == {"all": "coco"}
