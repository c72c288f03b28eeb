"""`mast browse`: the photos of a folder on a page, with what its other commands find."""

import shutil
from pathlib import Path

import pytest
from pages import shown_on
from tiny import write_images

import mast
from mast.cli import main
from mast.core.errors import UserError


@pytest.mark.slow
def test_the_page_has_photos_copies_outliers_and_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.evaluation.label_errors.PENALTIES", (0.1,))
    folder, page = write_images(tmp_path / "set", 36), tmp_path / "page.html"
    shutil.copy(folder / "class0" / "003.jpg", folder / "class0" / "copy.jpg")
    (folder / "class1" / "broken.jpg").touch()
    options = ["--encoder", "timm:test_resnet", "--size", "32", "--untrained", "--device", "cpu"]
    assert main(["browse", str(folder), "--out", str(page), *options]) == 0
    assert capsys.readouterr().out.strip().endswith("page.html")
    assert "37 images" in page.read_text()
    assert "1 more is broken" in page.read_text()
    shown = shown_on(page)
    assert len(shown["names"]) == 37
    assert {*shown["labels"]} == {"class0", "class1", "class2"}
    assert {"color", "orientation"} <= shown["space"]["properties"].keys()
    copies, outliers, labels = shown["views"]
    assert (copies["title"], outliers["title"], labels["title"]) == ("Copies", "Outliers", "Labels")
    (group,) = [row["tiles"] for row in copies["rows"] if row["heading"].endswith(", exact")]
    assert {shown["names"][tile["at"]] for tile in group} == {"class0/003.jpg", "class0/copy.jpg"}
    assert [tile["kept"] for tile in group] == [True, False]
    assert len(outliers["rows"][0]["tiles"]) == 37
    monkeypatch.setattr("mast.page.gallery.PHOTOS", 20)
    mast.browse(folder, page, "timm:test_resnet", size=32, untrained=True, device="cpu")
    assert len(shown_on(page)["names"]) == 20
    assert "20 of them, drawn at random" in page.read_text()


def test_a_page_needs_ten_photos(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "set", 6)
    with pytest.raises(UserError, match="data: expected 10 different photos or more, got 6"):
        mast.browse(folder, tmp_path / "page.html", "timm:test_resnet", size=32, untrained=True)
