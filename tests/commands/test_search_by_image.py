"""`mast neighbours` on a run that was really trained."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.core.table import SHOWN


def test_the_nearest_are_those_of_the_features(
    ours: RunFolder, photos: Path, tmp_path: Path
) -> None:
    data = str(photos / "test")
    for options in ({}, {"ignore": "color"}):
        with np.load(mast.embed(data, ours.path, tmp_path / "f.npz", **options)) as arrays:
            unit_ND = F.normalize(torch.from_numpy(arrays["features"]), dim=1)
            names = arrays["identifiers"].tolist()
        cosine_N = (unit_ND @ unit_ND[5]).tolist()
        order = sorted(set(range(24)) - {5}, key=lambda at: -cosine_N[at])[:4]
        page = tmp_path / "near.html"
        found = mast.neighbours(data, 5, ours.path, 4, page, **options).columns
        assert ("; ignored: color." in page.read_text()) == ("ignore" in options)
        assert found["cosine"] == pytest.approx([cosine_N[at] for at in order], abs=1e-5)
        assert found["path"] == [names[at] for at in order]
        assert found["rank"] == [1, 2, 3, 4]
        with Image.open(photos / "test" / names[order[0]]) as image:
            (by_pillow,) = mast.neighbours(data, image, ours.path, 1, **options)
        assert by_pillow["path"] == names[order[0]]


def test_a_query_may_be_named_in_many_ways(
    ours: RunFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """An image of the set is not its own neighbour, however it is named; its copy elsewhere is."""
    monkeypatch.chdir(photos)
    name = "class0/003.jpg"
    (tmp_path / "copy.jpg").write_bytes((photos / "test" / name).read_bytes())
    with np.load(mast.embed("test", ours.path, tmp_path / "f.npz")) as arrays:
        position = arrays["identifiers"].tolist().index("class1/001.jpg")
    queries = (name, str(position), f"test/{name}", str(tmp_path / "copy.jpg"))
    out = tmp_path / "near.csv"
    command = ["neighbours", "test", "--encoder", str(ours.path), "--query", *queries]
    assert main([*command, "--k", "3", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    queries = (name, "class1/001.jpg", *queries[2:])  # a position has the name of its image
    assert all(query in "".join(shown.split()) for query in queries)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["query"] for row in rows] == [query for query in queries for _ in range(3)]
    first, second, third, copy = (
        [(row["path"], row["cosine"]) for row in rows[at : at + 3]] for at in (0, 3, 6, 9)
    )
    assert first == third != second
    assert copy[0] == (name, "1")
    assert [path for path, _ in copy[1:]] == [path for path, _ in first[:2]]
    (tmp_path / "drop.txt").write_text("class1/001.jpg\n")
    (tmp_path / "link").symlink_to(photos / "test")
    for data, others in ((f"test#exclude={tmp_path / 'drop.txt'}", 22), (tmp_path / "link", 23)):
        found = mast.neighbours(data, f"test/{name}", ours.path, k=99)
        assert (len(found), name in found.columns["path"]) == (others, False)
        assert found._repr_html_().count("data:image/jpeg") == SHOWN  # the query is a file
    monkeypatch.chdir(tmp_path)
    Path("000001").write_bytes((photos / "test" / name).read_bytes())
    found = mast.neighbours("toys@test:12", "./000001", ours.path, k=99).columns["path"]
    assert "000001" in found  # the image that the set calls so; the query is a file


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": "nowhere.jpg"}, "or a file, got 'nowhere.jpg'"),
        ({"query": "24"}, "by position below 24, or a file"),
        ({"query": []}, "query: expected"),
        ({"query": __file__}, "test_search_by_image.py: no image"),
        ({"k": 0}, "k: expected 1 to 23, got 0"),
        ({"match": "color", "space": "depths"}, "expected only one of ignore/match"),
    ],
)
def test_what_cannot_be_is_refused(
    options: dict[str, object], message: str, ours: RunFolder, photos: Path
) -> None:
    arguments = {"query": "0", **options}
    with pytest.raises(UserError, match=message) as refused:
        mast.neighbours(str(photos / "test"), encoder=ours.path, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
