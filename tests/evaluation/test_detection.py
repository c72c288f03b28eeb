"""Detection and segmentation: the networks, their images, their score, and what is refused."""

import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from faster_coco_eval.core import mask as tools
from layouts import SQUARE, box, voc_object, write_coco, write_voc
from torch import nn

from mast.core.compute import Compute
from mast.core.errors import UserError
from mast.core.loop import StepResult
from mast.data import open_source
from mast.encoders.frozen import FrozenEncoder
from mast.models import Encoder, EncoderConfig
from paper.annotated import Annotated
from paper.protocols.detection import protocol as protocol_module
from paper.protocols.detection.average_precision import AveragePrecision, annotated_target
from paper.protocols.detection.batches import ObjectBatch, TrainingObjects, mirrored, rasterise
from paper.protocols.detection.data import ObjectData
from paper.protocols.detection.detectors import build_detector
from paper.protocols.detection.protocol import Detection, ObjectProtocol, Segmentation

CPU = torch.device("cpu")
ONE: Any
ONE, *TWO = (
    SimpleNamespace(global_rank=rank, world_size=processes, device=CPU)
    for rank, processes in ((0, 1), (0, 2), (1, 2))
)
KINDS = {"detection": Detection, "segmentation": Segmentation}


def quick(kind: str = "detection", **changes: Any) -> ObjectProtocol:
    """A protocol that trains in a second."""
    settings = {
        "iterations": 2, "batch_size": 2, "lr": 0.01, "warmup": 0, "min_sizes": (32, 40),
        "test_min_size": 40, "max_size": 64, "regions": 4, "pyramid": 8,
        "anchors": (8, 12, 16, 24, 32), **changes,
    }  # fmt: skip
    return KINDS[kind](**settings)


# ----------------------------------------------------------------------------- average precision


def truth(source: Annotated, masks: bool, ignored: bool = False) -> dict[str, float]:
    """The measures of a detector that finds exactly what is annotated."""
    precision = AveragePrecision(source, masks)
    for index in range(len(source)):
        target = annotated_target(source, index, masks)
        kept_N = (target["iscrowd"] == 0) | ignored
        found = {key: target[key][kept_N] for key in ("boxes", "labels", "masks") if key in target}
        if masks:
            found["masks"] = found["masks"].bool()
        precision.add(index, {**found, "scores": torch.ones(len(found["labels"]))})
    return dict(precision.measures(ONE))


def test_the_truth_scores_all_points_on_coco(tmp_path: Path) -> None:
    pixels_HW = np.zeros((6, 8), np.uint8)
    pixels_HW[2:4, 5:8] = 1
    runs = tools.encode(np.asfortranarray(pixels_HW))
    packed = {"size": [6, 8], "counts": runs["counts"].decode()}
    objects = [
        box(10, 7, [2, 1, 4, 3], segmentation=SQUARE, area=12),
        box(10, 3, [0, 0, 8, 6], segmentation={"counts": [0, 48], "size": [6, 8]}, iscrowd=1),
        box(20, 3, [5, 2, 3, 2], segmentation={"counts": [32, 2, 4, 2, 4, 2, 2], "size": [6, 8]}),
        box(30, 3, [5, 2, 3, 2], segmentation=packed),
    ]
    source = open_source(f"coco:{write_coco(tmp_path, annotations=objects)}@train2017")
    assert np.array_equal(rasterise(packed, 6, 8), pixels_HW)
    assert np.array_equal(rasterise(objects[2]["segmentation"], 6, 8), pixels_HW)
    for ignored in (False, True):  # what is found in a crowd does not count
        values = truth(source, masks=True, ignored=ignored)
        assert values == {f"{kind}/{measure}": pytest.approx(100.0) for kind in ("objects", "masks")
                          for measure in ("ap", "ap50", "ap75", "ap_small")}  # fmt: skip


def test_difficult_objects_do_not_count(tmp_path: Path) -> None:
    inside = voc_object("dog", (1, 1, 4, 4)) + voc_object("cat", (4, 2, 8, 6), difficult=1)
    source = open_source(
        f"voc:{write_voc(tmp_path, a=inside, b=voc_object('cat', (1, 1, 3, 3)))}@trainval"
    )
    for ignored in (False, True):
        assert truth(source, masks=False, ignored=ignored)["objects/ap"] == pytest.approx(100.0)


# ---------------------------------------------------------------------------------------- images


def test_a_flip_moves_boxes_and_masks_together() -> None:
    masks_NHW = torch.zeros(2, 6, 9, dtype=torch.uint8)
    masks_NHW[0, 1:4, 2:6] = 1
    masks_NHW[1, 0:6, 7:9] = 1
    boxes_N4 = torch.tensor([[2.0, 1, 6, 4], [7, 0, 9, 6]])
    image_CHW = torch.arange(3 * 6 * 9, dtype=torch.uint8).view(3, 6, 9)
    flipped_CHW, target = mirrored(image_CHW, {"boxes": boxes_N4, "masks": masks_NHW})
    assert torch.equal(flipped_CHW[:, :, 0], image_CHW[:, :, -1])
    for box_4, mask_HW in zip(target["boxes"], target["masks"], strict=True):
        rows, columns = mask_HW.nonzero().T
        around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert box_4.tolist() == [float(side) for side in around]


def test_two_processes_share_the_batches_of_one(object_data: ObjectData) -> None:
    objects = TrainingObjects(object_data.train, batch_size=4, seed=3, masks=True)
    shown = []
    for step in range(6):
        whole = objects.batch(ONE, step)
        parts = [objects.batch(process, step) for process in TWO]
        images = [image for part in parts for image in part.images]
        targets = [target for part in parts for target in part.targets]
        assert all(map(torch.equal, images, whole.images))
        for target, expected in zip(targets, whole.targets, strict=True):
            assert all(torch.equal(target[key], value) for key, value in expected.items())
            rows = [mask.any(1).sum() for mask in target["masks"]]
            assert rows == [int(b[3] - b[1]) for b in target["boxes"]]
        shown += [image.float().mean().item() for image in whole.images]
    # Every image comes once a turn; the one with a crowd alone never does.
    count = len(objects.usable_M)
    assert count == len(object_data.train) - 2
    assert len({round(value, 3) for value in shown[:count]}) == count


# -------------------------------------------------------------------------------------- networks


SMALL = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (EncoderConfig("timm:resnet50", SMALL), "c4"),
        (EncoderConfig("torchvision:resnet18"), "masks"),
    ],
)
def test_resnets_train(config: EncoderConfig, kind: str, object_data: ObjectData) -> None:
    encoder = Encoder(config, 64).eval()
    protocol = quick("segmentation" if kind == "masks" else "detection")
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    layers = {key: value for key, value in encoder.model.state_dict().items() if "fc." not in key}
    body = "backbone." if kind == "c4" else "backbone.body."
    names = {
        key: f"roi_heads.box_head.{key}" if kind == "c4" and "layer4" in key else body + key
        for key in layers
    }
    built = build_detector(encoder, 2, protocol._network).state_dict()
    assert all(torch.equal(built[names[key]], value) for key, value in layers.items())
    steps: list[StepResult] = []
    trained = protocol.train(FrozenEncoder(encoder), object_data, steps.append)
    assert [step.step for step in steps] == [1, 2]
    terms = {"loss", "proposals", "proposal boxes", "classes", "boxes"}
    metrics = dict(steps[0].metrics or {})
    assert metrics.keys() == terms | ({"masks"} if kind == "masks" else set())
    weights = dict.fromkeys(("proposals", "proposal boxes"), protocol.rpn_weight)
    weighted = [weights.get(name, 1) * value for name, value in metrics.items() if name != "loss"]
    assert metrics["loss"] == pytest.approx(sum(weighted), rel=1e-5)
    assert all(math.isfinite(value) for step in steps for value in (step.metrics or {}).values())
    after = trained.state_dict()
    assert any(not torch.equal(after[names[key]], value) for key, value in layers.items()
               if "layer1" in key)  # fmt: skip
    assert all(torch.equal(before[key], value) for key, value in encoder.state_dict().items())
    assert not any(module.training for module in encoder.modules())


@pytest.mark.parametrize(
    ("kind", "size"),
    [("c4", 32), ("fpn", 96)],  # of the small stem, and of the standard one
)
def test_the_body_computes_what_the_encoder_does(kind: str, size: int) -> None:
    encoder = Encoder(EncoderConfig("timm:resnet18", {"channels": [8, 8, 16, 16]}), size).eval()
    detector = build_detector(encoder, 2, quick(architecture=kind)._network).eval()
    images_BCHW = torch.rand(2, 3, size, size)
    normalised_BCHW = (images_BCHW - encoder.mean) / encoder.std
    theirs = [detector.transform.normalize(image_CHW) for image_CHW in images_BCHW]  # type: ignore[operator, union-attr]
    torch.testing.assert_close(torch.stack(theirs), normalised_BCHW)
    if kind == "c4":
        maps = detector.backbone(normalised_BCHW)  # type: ignore[operator]
        last_BCHW = detector.get_submodule("roi_heads.box_head.layer4")(maps["0"])
    else:
        last_BCHW = detector.get_submodule("backbone.body")(normalised_BCHW)["3"]
    torch.testing.assert_close(last_BCHW.mean((2, 3)), encoder(images_BCHW))


def test_frozen_batchnorm_keeps_its_state(resnet: Encoder, object_data: ObjectData) -> None:
    protocol = quick(batchnorm="frozen")
    trained = protocol.train(FrozenEncoder(resnet), object_data).state_dict()
    kept = {key: value for key, value in resnet.model.state_dict().items() if "bn" in key}
    for key, value in kept.items():
        if "num_batches" not in key:
            name = f"roi_heads.box_head.{key}" if "layer4" in key else f"backbone.{key}"
            assert torch.equal(trained[name], value)
    assert not any("box_head.norm" in key for key in trained)


def test_the_rate_is_detectron2s() -> None:
    protocol = Detection()
    at = {0: 0.001, 50: 0.5005, 100: 1.0, 17_999: 1.0, 18_000: 0.1, 22_000: 0.01, 23_999: 0.01}
    for iteration, expected in at.items():
        assert protocol.rate((iteration + 1) / 24_000) == pytest.approx(expected)


def test_mixed_precision_leaves_boxes_exact(
    resnet: Encoder, object_data: ObjectData, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = set()
    forward = protocol_module.DetectorLoss.forward

    def watched(self: nn.Module, batch: ObjectBatch) -> dict[str, torch.Tensor]:
        kinds.update(target["boxes"].dtype for target in batch.targets)
        return forward(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(protocol_module.DetectorLoss, "forward", watched)
    encoder = FrozenEncoder(resnet, Compute(dtype=torch.bfloat16))
    values = dict(quick("segmentation", iterations=1).run(encoder, object_data))
    assert all(0 <= float(value) <= 100 for value in values.values())
    assert kinds == {torch.float32}


# ----------------------------------------------------------------------------------------- errors


def test_what_no_detector_is_made_of_is_refused(resnet: Encoder) -> None:
    with pytest.raises(UserError, match=r"a ResNet of torchvision or timm.* got Vision"):
        build_detector(Encoder(EncoderConfig("timm:vit_tiny_patch16_224"), 32), 2, quick()._network)
    with pytest.raises(UserError, match=r"5 maps with anchors .* got 2 sides"):
        build_detector(resnet, 2, quick(architecture="fpn", anchors=(8, 16))._network)


def test_segmentation_needs_masks(resnet: Encoder, tmp_path: Path) -> None:
    source = open_source(f"voc:{write_voc(tmp_path, a=voc_object('dog', (1, 1, 4, 4)))}@trainval")
    with pytest.raises(UserError, match=r"in voc:.* 1 of 1 images have objects without.* a\.jpg"):
        next(quick("segmentation").run(FrozenEncoder(resnet), ObjectData(source, source, 32)))


def test_broken_images(
    resnet: Encoder, object_data: ObjectData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "squares"
    shutil.copytree(object_data.train.folder.parent, root)
    folders = {part: root / getattr(object_data, part).folder.name for part in ("train", "test")}
    (folders["train"] / "0.png").write_bytes(b"no image")
    train = open_source(f"coco:{root}@train")
    # In training another image takes its place, and it is named once.
    settings = quick(iterations=6)
    settings.train(FrozenEncoder(resnet), ObjectData(train, object_data.test, 32))
    assert caplog.text.count("trained on another one in its place") == 1
    (folders["test"] / "0.png").write_bytes(b"no image")
    test = open_source(f"coco:{root}@test")
    assert isinstance(test, Annotated)
    with pytest.raises(UserError, match="replace or remove this file"):
        list(settings.run(FrozenEncoder(resnet), ObjectData(object_data.train, test, 32)))
