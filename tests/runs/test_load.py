"""A run is opened from what it left: two files of weights, or a checkpoint."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load as loaded
from safetensors.torch import load_file, save_file
from tiny import ENCODER, configure
from torch import nn

import mast
from mast.core.checkpoint import load_checkpoint, previous
from mast.core.errors import UserError
from mast.core.reading import Layout, Reading
from mast.core.run import RunFolder
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.data import open_canvas
from mast.encoders.load import load
from mast.models import Classifier, Encoder, EncoderConfig, load_encoder, save_encoder
from mast.models.classifier import save_classifier
from mast.runs.load import load_representation
from mast.runs.start import load_untrained

IMAGES = torch.linspace(0, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)


@pytest.mark.usefixtures("baselines")
@pytest.mark.parametrize("name", ["ours", "theirs"])
def test_both_files_hold_the_method(name: str, request: pytest.FixtureRequest) -> None:
    run: RunFolder = request.getfixturevalue(name)
    kept = load_checkpoint(run.last)["module"]
    shutil.rmtree(run.last.parent)
    method = mast.load_method(run.path)
    assert not method.training
    assert method.state_dict().keys() == kept.keys()
    assert all(torch.equal(kept[key], value) for key, value in method.state_dict().items())
    assert not any(key.startswith("encoder.") for key in load_file(run.embedding))
    if name == "ours":
        with torch.no_grad():
            assert load_representation(run.path, "embedding").module(IMAGES).shape == (2, 24)
            assert load_representation(run.path, "ensemble").module(IMAGES).shape == (2, 5 * 24)


def test_dino_s_teacher_is_what_is_kept(photos: Path, tmp_path: Path) -> None:
    """As its official code evaluates the teacher; embeddings are the teacher's, too."""
    config = configure(photos, tmp_path / "dino", "dino_small", objective={"prototypes": 6})
    run = mast.pretrain(config)
    state = load_checkpoint(run.last)["module"]
    differs = False  # from the student
    for key, value in mast.load_encoder(run.path).model.state_dict().items():
        assert torch.equal(value, state[f"teacher.encoder.model.{key}"])
        differs |= not torch.equal(value, state[f"encoder.model.{key}"])
    assert differs
    with torch.no_grad():
        finished = mast.load_embedding(run.path)(IMAGES)
        shutil.move(run.encoder, tmp_path)
        from_checkpoint = mast.load_embedding(run.path)(IMAGES)
    assert torch.equal(from_checkpoint, finished)


@torch.no_grad()
def test_a_run_without_the_file_is_read_from_its_checkpoint(ours: RunFolder) -> None:
    expected = mast.load_embedding(ours.path)(IMAGES)
    for file in (ours.embedding, ours.encoder):  # an older run; one that is not finished
        kept = file.read_bytes()
        file.unlink()
        assert torch.equal(mast.load_embedding(ours.path)(IMAGES), expected)
        file.write_bytes(kept)
    ours.embedding.unlink()
    ours.last.rename(previous(ours.last))  # killed between two renames
    assert torch.equal(mast.load_embedding(ours.path)(IMAGES), expected)
    shutil.rmtree(ours.last.parent)
    with pytest.raises(UserError, match=r"expected embedding\.safetensors and an encoder, or a"):
        mast.load_method(ours.path)
    assert mast.load_encoder(ours.path)(IMAGES).shape == (2, 16)


def test_a_file_that_does_not_fit_is_named(ours: RunFolder, theirs: RunFolder) -> None:
    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            mast.load_method(ours.path)

    whole, encoder = loaded(ours.embedding.read_bytes()), ours.encoder.read_bytes()
    short = dict(whole)
    del short["masks.logits_DK"]
    save_file(short, ours.embedding)
    refused(r"embedding\.safetensors does not fit .*config\.yaml.*masks\.logits_DK")
    save_file(whole | {"masks.logits_DK": whole["masks.logits_DK"].to(torch.int8)}, ours.embedding)
    refused(r"embedding\.safetensors does not fit .*masks\.logits_DK torch\.int8")
    shutil.copy(theirs.embedding, ours.embedding)
    refused(r"ours has .*, but embedding\.safetensors was trained with")
    ours.embedding.write_bytes(b"not weights")
    refused(r"embedding\.safetensors is damaged, not a readable safetensors file")
    save_file(whole, ours.embedding)
    save_encoder(Encoder(EncoderConfig("resnet18"), 32), ours.encoder)
    refused(r"encoder\.safetensors is not the encoder that .*config\.yaml")
    ours.encoder.write_bytes(encoder)
    config = yaml.safe_load(ours.config.read_text())
    config["objective"]["projector"]["dim"] = 30
    ours.config.write_text(yaml.safe_dump(config))
    refused(r"embedding\.safetensors does not fit .*config\.yaml")


def test_weights_that_are_no_numbers_are_refused_by_the_name_of_their_file(ours: RunFolder) -> None:
    """In files whose digests are right, as of a run that diverged."""

    def spoiled(file: Path, name: str, value: float) -> None:
        tensors, header = read_tensors(file)
        tensors[name] = tensors[name].float().flatten().fill_(value).view(tensors[name].shape)
        write_tensors(file, tensors, read_metadata(header))

    encoder, whole = mast.load_encoder(ours.path), ours.embedding.read_bytes()
    head = nn.Linear(encoder.dim, 2)
    save_classifier(Classifier(encoder, head, ("a", "b"), 32, 1.0, {}), ours.path / "classifier-a")
    for file, name, opened in (
        (ours.embedding, "projector.trunk.1.running_var", mast.load_method),
        (ours.path / "classifier-a", "head.weight", mast.load_classifier),
        (ours.path / "classifier-a", "encoder.model.conv1.weight", mast.load_classifier),
        (ours.encoder, "conv1.weight", mast.load_encoder),
    ):
        for value in (math.nan, -math.inf):
            spoiled(file, name, value)
            inner = name.removeprefix("head.").removeprefix("encoder.model.")
            with pytest.raises(
                UserError, match=rf"{file.name} has NaN or infinite weights in 1 of \d+ .*{inner}"
            ):
                opened(file.parent if file == ours.embedding else file)
        if file == ours.embedding:
            file.write_bytes(whole)


@pytest.mark.parametrize("name", ["ours", "blocks"])
@torch.no_grad()
def test_the_invariance_is_chosen_at_the_call(
    name: str, trained: Callable[..., RunFolder], theirs: RunFolder, tmp_path: Path
) -> None:
    ours = trained(name, tmp_path / "ours")
    embedding = mast.load_embedding(ours.path)
    whole = embedding(IMAGES)
    assert (whole.shape, embedding.size) == ((2, 24), 32)
    assert embedding.trained_with == embedding.operators
    mask_DK = embedding.masks()
    assert mask_DK is not None
    first, second = "color_jitter", "horizontal_flip"
    share = dict(zip(embedding.operators, (mask_DK / mask_DK.amax(dim=0)).T, strict=True))
    assert share[first].sum() < len(share[first])
    torch.testing.assert_close(embedding(IMAGES, ignore=first), whole * share[first])
    torch.testing.assert_close(
        embedding(IMAGES, ignore=(first,), match=[second]),
        whole * share[first] * (1 - share[second]),
    )
    of_color = ["color_jitter", "grayscale"]
    for color in ("color", "colour"):
        assert torch.equal(embedding(IMAGES, match=color), embedding(IMAGES, match=of_color))
    with pytest.raises(UserError, match="none of the operators here changes parts: random"):
        embedding(IMAGES, ignore="parts")
    plain = mast.load_embedding(theirs.path)
    assert plain.trained_with
    assert torch.equal(plain(IMAGES, ignore=first), plain(IMAGES))
    assert torch.equal(plain(IMAGES, ignore=None, match=""), plain(IMAGES))
    with pytest.raises(UserError, match="nothing can be matched by its embedding"):
        plain(IMAGES, match=first)
    with pytest.raises(UserError, match="is not a run folder"):
        mast.load_embedding(ours.encoder)
    ours.config.unlink()
    for taken in (ours.path, ours.encoder):  # results do not belong to a folder of others
        assert load(taken).folder.parts[0] == "runs"


def test_how_files_are_read_is_in_the_file_of_the_encoder(
    theirs: RunFolder, tmp_path: Path
) -> None:
    """Not in the configuration from which a method, or a teacher, is built."""
    encoder, teacher = load_encoder(theirs.path), Encoder(ENCODER, 32)
    encoder.reading = Reading(Layout(3, deep=True), (0.0,), (4095.0,))
    save_encoder(encoder, theirs.encoder)
    assert mast.load_method(theirs.path).encoder.reading == encoder.reading
    assert load(theirs.path).description["reading"]["high"] == (4095.0,)
    assert load_untrained(theirs.path).module.reading == encoder.reading
    np.save(tmp_path / "0.npy", np.full((8, 8, 3), 100, np.uint16))
    opened = open_canvas(str(tmp_path), 32, model=nn.ModuleList([encoder, teacher]))
    assert opened.reading == encoder.reading
