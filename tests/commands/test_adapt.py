"""`mast adapt` on real files, and what other commands do with the folder that it writes."""

import colorsys
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import mast
from mast.cli import main
from mast.commands.adapt import Adaptation
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.core.tensors import read_tensors
from mast.encoders.extract import extract
from mast.evaluation.result import results_in
from mast.invariance.adapted import tensors_of
from mast.invariance.subspaces import MATCHED
from mast.models import Encoder, EncoderConfig, save_encoder

NAME, SMALL = "timm:efficientnet_lite0", "timm:test_resnet"
FEW = ["color_jitter", "grayscale", "horizontal_flip", "rotate"]


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """36 images, `<hue><pattern>.png`: one of six hues and of six patterns."""
    folder = tmp_path_factory.mktemp("colors")
    draw = np.random.default_rng(0)
    patterns = draw.random((6, 4, 4, 1)).repeat(12, axis=1).repeat(12, axis=2)
    for hue, pattern in itertools.product(range(6), repeat=2):
        color = 255 * np.array(colorsys.hsv_to_rgb(hue / 6, 0.7, 0.9))
        pixels = color * (0.3 + 0.7 * patterns[pattern]) + draw.normal(0, 4, (48, 48, 3))
        file = folder / f"{hue}{pattern}.png"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file)
    return folder


@pytest.fixture(scope="module")
def adapted(colors: Path, tmp_path_factory: pytest.TempPathFactory) -> Adaptation:
    """A network with random weights, adapted on these images."""
    out = tmp_path_factory.mktemp("adapted") / "run"
    return mast.adapt(colors, NAME, untrained=True, size=32, out=out, operators=FEW, device="cpu")


@pytest.fixture(scope="module")
def small(colors: Path, tmp_path_factory: pytest.TempPathFactory) -> Adaptation:
    """The smallest network, adapted."""
    out = tmp_path_factory.mktemp("small") / "run"
    return mast.adapt(colors, SMALL, untrained=True, size=32, out=out, operators=FEW, device="cpu")


def agreement(adapted: Adaptation, data: Path, **chosen: str) -> tuple[float, float]:
    """How many of the five nearest have the hue, and the pattern, of the query."""
    names = sorted(file.name for file in data.glob("*.png"))
    found = mast.neighbours(data, names, adapted.adapted, k=5, device="cpu", **chosen).columns
    pairs = list(zip(found["query"], found["path"], strict=True))
    hue, pattern = (np.mean([a[at] == b[at] for a, b in pairs]) for at in (0, 1))
    return float(hue), float(pattern)


def test_what_is_matched_and_ignored_is_chosen_when_searching(
    adapted: Adaptation, colors: Path
) -> None:
    hue, pattern = agreement(adapted, colors, match="color")
    assert hue > 0.9
    hue, pattern = agreement(adapted, colors, ignore="color")
    assert hue < 0.3
    assert pattern > 0.6
    hue, pattern = agreement(adapted, colors)  # the encoder as it is
    assert hue > 0.4
    assert pattern < 0.4


def test_it_is_opened_again_as_it_was(small: Adaptation, colors: Path) -> None:
    assert small.path is not None
    again, images = mast.load_adapted(small.path), mast.open_images([colors / "00.png"], 32)
    encoder = mast.load_encoder(small.path)  # which it is to other commands
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), small.adapted.encoder(images))
        for choice in ({}, {"ignore": "color"}, {"match": ["rotate", "horizontal_flip"]}):
            torch.testing.assert_close(again(images, **choice), small.adapted(images, **choice))
    with pytest.raises(UserError, match="at 32 pixels"):
        mast.neighbours(colors, "00.png", small.path, k=3, size=48, ignore="color")


@pytest.mark.slow
@pytest.mark.parametrize("format", ["pt2", "onnx"])
def test_the_space_is_part_of_an_export(format: str, small: Adaptation, colors: Path) -> None:
    assert small.path is not None
    exported = mast.export(small.path, format, match="color")
    names: dict[str, Any] = {}
    exec(exported.line, names)
    images_BCHW = mast.open_images([colors / "00.png", colors / "11.png"], 32)
    with torch.no_grad():
        ours_BJ = small.adapted(images_BCHW, match="color")
        if format == "pt2":
            theirs_BJ = names["model"](images_BCHW)
        else:
            (name,) = (each.name for each in names["model"].get_inputs())
            theirs_BJ = torch.from_numpy(names["model"].run(None, {name: images_BCHW.numpy()})[0])
    torch.testing.assert_close(theirs_BJ, ours_BJ, rtol=1e-3, atol=1e-4)
    text = (exported.folder / "README.md").read_text()
    assert f"of 32 × 32 pixels to {MATCHED} features, to be compared by cosine (matched: co" in text
    assert "pretrained" not in text


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_module_is_adapted_by_its_named_layers(colors: Path, tmp_path: Path) -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    ).eval()  # fmt: skip
    options = {"size": 32, "operators": ["color_jitter", "grayscale"], "device": "cpu"}
    module.train()
    assert mast.adapt(colors, module, **options).path is None
    kept = mast.adapt(colors, module, layers=["1"], out=tmp_path, **options)
    assert kept.adapted.depths.layers == ("1", "output")
    (tmp_path / "encoder.safetensors").touch()  # an earlier encoder's
    mast.adapt(colors, module, layers=["1"], out=tmp_path, **options)
    assert not (tmp_path / "encoder.safetensors").exists()
    images = mast.open_images([colors / "00.png"], 32)
    again = mast.load_adapted(tmp_path, encoder=module)
    torch.testing.assert_close(again(images, match="color"), kept.adapted(images, match="color"))
    compiled = torch.compile(module, backend="eager")
    compiled(images)  # from now on without hooks
    again = mast.load_adapted(tmp_path, encoder=compiled)
    torch.testing.assert_close(again(images, match="color"), kept.adapted(images, match="color"))
    found = mast.adapt(colors, compiled, layers=["1"], **options).adapted
    assert found(images).equal(kept.adapted(images))
    scripted = torch.jit.script(module)
    assert mast.adapt(colors, scripted, **options).adapted.depths.layers == ("output",)
    with pytest.raises(UserError, match="unknown layer '1'"):
        mast.adapt(colors, scripted, layers=["1"], **options)
    mast.Encoder(module, size=32, device="cpu").encode(colors, ignore="color")
    assert all(part.training for part in module.modules())  # it stays as it was
    with pytest.raises(UserError, match="belongs to your own module"):
        mast.neighbours(colors, "00.png", tmp_path, match="color")
    module[1] = nn.Tanh()
    with pytest.raises(UserError, match="does not reproduce this encoder's features"):
        mast.load_adapted(tmp_path, encoder=module)
    with torch.no_grad():
        next(module.parameters()).add_(1)
    with pytest.raises(UserError, match="belongs to another encoder"):
        mast.load_adapted(tmp_path, encoder=module)


def test_a_depth_that_is_the_same_of_all_images_is_left_out(
    colors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an instance normalization's maps the means are rounding: 1e-7, by image."""
    torch.manual_seed(0)
    parts = nn.Conv2d(3, 8, 3, stride=2), nn.InstanceNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3)
    module = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    options: dict[str, Any] = {"size": 32, "operators": FEW, "device": "cpu"}
    found = mast.adapt(colors, module, layers=["0", "1"], **options)
    assert "left out, as their features are equal for all images: 1\n" in capsys.readouterr().err
    assert found.adapted.depths.layers == ("0", "output")
    images = mast.open_images(sorted(colors.glob("*.png")), 32)
    expected = mast.adapt(colors, module, layers="0", **options).adapted
    for chosen in ({}, {"ignore": "color"}, {"match": "color"}):
        assert found.adapted(images, **chosen).equal(expected(images, **chosen))
    with pytest.raises(UserError, match="gives equal features for all 36 images"):
        mast.adapt(colors, Given(lambda mean_BC: mean_BC / 1e6 + 5), **options)


def test_a_killed_adaptation_goes_on_with_the_next_operator(
    colors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = list[str | None]()

    def killed(*arguments: Any) -> torch.Tensor:
        change = arguments[4]
        encoded.append(change and change.name.partition(" ")[0])
        if len(encoded) == 3:
            raise KeyboardInterrupt
        return extract(*arguments)

    monkeypatch.setattr("mast.encoders.frozen.extract", killed)
    options = {"size": 31, "operators": FEW, "out": tmp_path, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        mast.adapt(colors, SMALL, untrained=True, **options)
    mast.adapt(colors, SMALL, untrained=True, **options)
    assert encoded == [None, *FEW[:2], *FEW[1:]]


def test_a_folder_of_something_else_is_left_alone(
    small: Adaptation, ours: RunFolder, colors: Path, tmp_path: Path
) -> None:
    before = ours.encoder.read_bytes()
    options = {"size": 32, "operators": FEW, "device": "cpu"}
    with pytest.raises(UserError, match=r"one that `mast adapt` wrote; .* has checkpoints"):
        mast.adapt(colors, SMALL, untrained=True, out=ours.path, **options)
    assert ours.encoder.read_bytes() == before
    assert small.path is not None
    begun = tmp_path / "begun"  # what it wrote itself is written again, ended or not
    shutil.copytree(small.path, begun)
    (begun / "encoder.safetensors").unlink()
    mast.adapt(colors, SMALL, untrained=True, out=begun, **options)
    (begun / "evaluations").mkdir()  # of another adaptation
    with pytest.raises(UserError, match="has evaluations"):
        mast.adapt(colors, SMALL, untrained=True, out=begun, **options)


def test_it_is_measured_at_the_size_of_its_adaptation(photos: Path, tmp_path: Path) -> None:
    save_encoder(Encoder(EncoderConfig(SMALL), 32), tmp_path / "encoder.safetensors")
    made = mast.adapt(photos / "train", tmp_path / "encoder.safetensors", size=48, operators=FEW,
                      out=tmp_path / "out", device="cpu")  # fmt: skip
    (result,) = mast.evaluate(made.path, photos, "knn", space="depths")
    assert result.settings["extraction"]["size"] == 48
    assert mast.fit(photos, made.path, space="depths").classifier.size == 48


class Given(nn.Module):
    """What a function makes of the mean color."""

    def __init__(self, of: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.of = of

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.of(images_BCHW.mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("encoder", "options", "message"),
    [
        (nn.LSTM(32, 3, batch_first=True), {}, "cannot take images of 32 pixels"),
        (nn.Conv2d(3, 4, 3), {}, "pool its feature map first"),
        (SMALL, {"images": 9}, "images: expected 10 or more, got 9"),
        (SMALL, {"operators": ["color_shift"]}, "unknown operator or property 'color_sh"),
        (SMALL, {"layers": ["model.layer9"]}, "unknown layer 'model.layer9'"),
    ],
)
def test_what_cannot_be_adapted_is_one_line(
    encoder: nn.Module | str, options: dict[str, Any], message: str, colors: Path
) -> None:
    with pytest.raises(UserError, match=message):
        mast.adapt(colors, encoder, size=32, device="cpu", untrained=True, **options)


@pytest.fixture(scope="module")
def hues(colors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images with a subfolder a hue."""
    root = tmp_path_factory.mktemp("labelled") / "hues"
    for file in colors.glob("*.png"):
        (root / file.stem[0]).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file.stem[0])
    return root


def test_protocols_see_the_space_that_is_chosen(
    adapted: Adaptation, hues: Path, tmp_path: Path
) -> None:
    """Hues are told apart where color is matched, and no better than by chance if it is ignored."""
    assert adapted.path is not None
    run = tmp_path / "run"
    shutil.copytree(adapted.path, run)
    accuracy = {}
    for choice in ("match", "ignore"):
        (result,) = mast.evaluate(run, hues, "knn", device="cpu", **{choice: ["color"] * 2})
        accuracy[choice] = result.targets["class"].values["top1"]
        kind = {"match": "matched", "ignore": "ignored"}[choice]
        assert result.encoder["space"] == {kind: ["color_jitter", "grayscale"]}
        assert [*(run / "spaces" / f"{kind}-color" / "evaluations").glob("knn-*.json")]
    assert accuracy["match"] == 100
    assert accuracy["ignore"] < 75


def test_pairs_choose_and_their_weights_are_kept(
    adapted: Adaptation, colors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pairs of one hue are the same, pairs of one pattern are not; and the other way round."""
    assert adapted.path is not None
    names = sorted(file.name for file in colors.glob("*.png"))
    of_hue, of_pattern = [(0, 3)], [("11.png", "41.png")]
    agreed = {}
    for way, same, different in (("hue", of_hue, of_pattern), ("pattern", of_pattern, of_hue)):
        file = tmp_path / f"{way}.json"
        found = mast.neighbours(
            colors, names, adapted.path, k=5, same=same, different=different, space=file,
            device="cpu",
        ).columns  # fmt: skip
        pairs = list(zip(found["query"], found["path"], strict=True))
        agreed[way] = [np.mean([a[at] == b[at] for a, b in pairs]) for at in (0, 1)]
        again = mast.neighbours(colors, names, adapted.path, k=5, space=file, device="cpu").columns
        assert again["path"] == found["path"]
    assert agreed["hue"][0] > agreed["pattern"][0] + 0.3
    assert agreed["pattern"][1] > agreed["hue"][1] + 0.3
    said = capsys.readouterr()
    assert "fitted to your pairs (0 ignores, 1 is neutral): color 0" in said.out + said.err
    mast.embed(colors, adapted.path, tmp_path / "seen.npz", space=file, device="cpu")
    with np.load(tmp_path / "seen.npz") as arrays:
        assert any(word.startswith("color ") for word in arrays["weighted"].tolist())
    words = ["neighbours", str(colors), "--encoder", str(adapted.path), "--query", "0", "--k", "2"]
    assert main([*words, "--same", "00.png", "03.png", "--different", "7", "11.png"]) == 0
    said = capsys.readouterr()
    assert "orientation 0," in said.out + said.err
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for options, message in (
        ({"same": of_hue}, "expected both or neither"),
        ({"same": ["00.png"], "different": of_pattern}, "expected pairs of two images"),
        ({"space": tmp_path / "deep.json"}, r"deep.json has no weights"),
    ):
        with pytest.raises(UserError, match=message):
            mast.neighbours(colors, "00.png", adapted.path, k=3, device="cpu", **options)


def test_what_is_first_ignored_is_measured_on_the_photos_themselves(
    ours: RunFolder, colors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Once for the same photos, and as `adapt` does it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def search(data: Path | list[Path], **options: Any) -> list[tuple[Any, ...]]:
        found = mast.neighbours(data, colors / "00.png", ours.path, k=3, device="cpu", **options)
        return [*zip(*found.columns.values(), strict=True)]

    first = search(colors, ignore="color")
    assert "operators change 36 of the photos" in capsys.readouterr().err
    assert search(colors, ignore="color") == first
    assert "measured" not in capsys.readouterr().err
    by_hand = mast.adapt(colors, ours.path, out=tmp_path / "adapted", device="cpu").adapted
    (kept,) = (tmp_path / "cache" / "mast" / "measured").glob("*/*/subspaces.safetensors")
    tensors = read_tensors(kept)[0]
    for name, values in tensors_of(by_hand).items():
        assert torch.equal(values, tensors[name])
    more = [*sorted(colors.iterdir()), *sorted(colors.iterdir())[:1]]  # one is there twice
    capsys.readouterr()
    search(more[2:], ignore="color")
    assert "measured" not in capsys.readouterr().err  # most photos were measured
    search(more[9:], ignore="color")
    assert "operators change 28 of the photos" in capsys.readouterr().err
    kept.write_bytes(b"damaged")
    assert search(colors, ignore="color") == first
    few = sorted(colors.iterdir())[:9]
    capsys.readouterr()
    paths = [row[2] for row in search(few, ignore="color")]
    assert "ignore and match need 10 different photos, got 9" in capsys.readouterr().err
    assert paths == [row[2] for row in search(few)]
    copies = mast.duplicates([few[0]] * 12, ours.path, "similar", ignore="color")
    assert "different photos, got 1 in" in capsys.readouterr().err
    assert copies["level"] == ["first", *["exact"] * 11]


def test_what_changes_nothing_is_left_out_in_one_line(
    colors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in colors.iterdir():
        with Image.open(file) as image:
            image.convert("L").save(tmp_path / file.name)
    options = {"k": 3, "untrained": True, "size": 32, "device": "cpu"}
    chosen = mast.neighbours(tmp_path, "00.png", SMALL, ignore=["grayscale"], **options)
    assert "left out, as they do not change the photos: grayscale" in capsys.readouterr().err
    plain = mast.neighbours(tmp_path, "00.png", SMALL, space="depths", **options)
    assert chosen.columns == plain.columns


def test_a_classifier_remembers_its_space(
    small: Adaptation, colors: Path, hues: Path, tmp_path: Path
) -> None:
    """Of hues it is right where color is matched; the file alone is enough to predict."""
    assert small.path is not None
    options = {"device": "cpu", "settings": {"penalties": [0.01]}}
    fitted = mast.fit(hues, small.path, match="color", out=tmp_path / "hue.safetensors", **options)
    assert fitted.about["validation"]["top1"] > 90
    assert fitted.about["encoder"]["space"] == {"matched": ["color_jitter", "grayscale"]}
    shutil.copy(small.path / "encoder.safetensors", tmp_path)
    mast.evaluate(fitted.path, hues, device="cpu")
    assert [result.protocol for result in results_in(tmp_path)] == ["classifier-hue"]
    images = mast.open_images([colors / "00.png", colors / "31.png"], 32)
    with torch.no_grad():
        expected = fitted.classifier(images)
        torch.testing.assert_close(mast.load_classifier(fitted.path)(images), expected)
    with pytest.raises(UserError, match="timm cannot store ignore"):
        mast.export(fitted.path, "timm")


def test_all_depths_are_a_space(ours: RunFolder, photos: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"space": "depths", "device": "cpu"}
    (result,) = mast.evaluate(ours.path, photos, "linear", **options)
    assert result.encoder["space"] == {"space": ["depths"]}
    adapted = mast.adapt(photos / "test", ours.path, out=tmp_path / "adapted", device="cpu").adapted
    fitted = mast.fit(photos, ours.path, **options)
    assert fitted.classifier.head.in_features == adapted.depths.dim
    with np.load(mast.embed(photos / "test", ours.path, tmp_path / "x.npz", **options)) as arrays:
        images = mast.open_images([photos / "test" / str(arrays["identifiers"][0])], adapted.size)
        level_BF = adapted.depths(images) - adapted.subspaces.mean_F
        expected_BF = level_BF / adapted.subspaces.scale_F
        assert arrays["features"][:1] == pytest.approx(expected_BF.detach().numpy(), abs=1e-4)
