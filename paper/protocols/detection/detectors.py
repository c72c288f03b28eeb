"""Networks that find objects: torchvision's Faster and Mask R-CNN with our ResNet as their body.

Two architectures. "c4" is Faster R-CNN on the one map of stride 16 (layers 1 to 3), whose layer 4
is the head that looks at every region, with one more BatchNorm behind it as in MoCo's detection.
"fpn" is a feature pyramid over layers 1 to 4; with masks it is Mask R-CNN.

Thresholds, anchors and the numbers of proposals are detectron2's defaults. What stays
torchvision's: regions are cropped half a pixel off (no "aligned" RoIAlign), and box errors below
1/9 count squared.

Boxes are float32 wherever they are computed, in mixed precision too; the layers are not.

B images, C channels, R regions.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.models import Encoder

Architecture = Literal["c4", "fpn"]

STAGES = ("layer1", "layer2", "layer3", "layer4")
RATIOS = (0.5, 1.0, 2.0)  # height to width of the anchors


@dataclass(frozen=True, kw_only=True)
class DetectorConfig:
    """What a network looks like, whatever its body; sizes are in pixels of the resized image."""

    architecture: Architecture
    masks: bool  # with "fpn" alone
    batchnorm: str  # "train": of the body, new layers and heads; "frozen": of the body
    min_sizes: tuple[int, ...]  # short sides, one of which is drawn for each image in training
    max_size: int  # of the long side
    anchors: tuple[int, ...]  # sides; with "fpn" one of each of its five maps
    regions: int  # of an image that the heads are trained on
    pyramid: int  # channels of the maps and of the head that draws masks


def build_detector(encoder: nn.Module, categories: int, config: DetectorConfig) -> nn.Module:
    """torchvision's FasterRCNN or MaskRCNN on the CPU, whose body starts as a copy of an `Encoder`
    over a ResNet and everything else at random. The background comes on top of the categories, as
    class 0.
    """
    _check(config)
    resnet = _resnet(encoder)
    assert isinstance(encoder, Encoder)
    build = _c4 if config.architecture == "c4" else _fpn
    shared: dict[str, Any] = {
        "min_size": config.min_sizes,
        "max_size": config.max_size,
        "image_mean": encoder.mean.flatten().tolist(),
        "image_std": encoder.std.flatten().tolist(),
        "box_batch_size_per_image": config.regions,
    }
    detector = build(resnet, categories + 1, config, shared)
    keep_boxes_in_float32(detector)
    for layer, deviation in (("cls_score", 0.01), ("bbox_pred", 0.001)):
        linear = detector.get_submodule(f"roi_heads.box_predictor.{layer}")
        assert isinstance(linear, nn.Linear)
        nn.init.normal_(linear.weight, std=deviation)
        nn.init.zeros_(linear.bias)
    return detector


def _check(config: DetectorConfig) -> None:
    if config.masks and config.architecture == "c4":
        raise UserError("masks need architecture 'fpn'; 'c4' finds boxes only")
    if config.architecture == "fpn" and len(config.anchors) != len(STAGES) + 1:
        raise UserError(
            f"architecture 'fpn' has {len(STAGES) + 1} maps with anchors of one side each, got "
            f"{len(config.anchors)} sides: {config.anchors}"
        )


def _resnet(encoder: nn.Module) -> Any:
    """A copy of the encoder's model, on the CPU and with gradients."""
    model = encoder.model if isinstance(encoder, Encoder) else encoder
    if not isinstance(encoder, Encoder) or type(model).__name__ != "ResNet":
        raise UserError(
            "detection and segmentation need an encoder that is a ResNet of torchvision or timm, "
            f"whose layers have a map each; got {type(model).__name__}."
        )
    if encoder.channels != 3:
        raise UserError(
            "detection and segmentation read images as RGB, and this encoder takes images of "
            f"{encoder.channels} channels"
        )
    return copy.deepcopy(model).cpu().requires_grad_(True)


@torch.no_grad()
def _channels(body: nn.Module) -> list[int]:
    """Channels of each map that a body returns."""
    body.eval()
    return [map_BCHW.shape[1] for map_BCHW in body(torch.zeros(1, 3, 64, 64)).values()]


def _c4(resnet: Any, classes: int, config: DetectorConfig, shared: dict[str, Any]) -> nn.Module:
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    (*_, channels) = _channels(IntermediateLayerGetter(resnet, {stage: stage for stage in STAGES}))
    head = nn.Sequential(OrderedDict(layer4=resnet.layer4))
    body = IntermediateLayerGetter(resnet, {"layer3": "0"})
    (body.out_channels,) = _channels(body)
    if config.batchnorm == "frozen":
        freeze_batchnorm(body)
        freeze_batchnorm(head)
    else:
        head.add_module("norm", nn.BatchNorm2d(channels))
    head.add_module("pool", nn.AdaptiveAvgPool2d(1))  # (R, C, 7, 7) → (R, C, 1, 1)
    return FasterRCNN(
        body,
        rpn_anchor_generator=AnchorGenerator((config.anchors,), (RATIOS,)),
        rpn_pre_nms_top_n_train=12000,
        rpn_pre_nms_top_n_test=6000,
        box_roi_pool=MultiScaleRoIAlign(["0"], output_size=14, sampling_ratio=0),
        box_head=head,
        box_predictor=FastRCNNPredictor(channels, classes),
        **shared,
    )


def _fpn(resnet: Any, classes: int, config: DetectorConfig, shared: dict[str, Any]) -> nn.Module:
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.detection import FasterRCNN, MaskRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    width = config.pyramid
    maps = {stage: str(number) for number, stage in enumerate(STAGES)}
    channels = _channels(IntermediateLayerGetter(resnet, maps))
    if config.batchnorm == "frozen":
        freeze_batchnorm(resnet)
    norm = nn.BatchNorm2d if config.batchnorm == "train" else None
    pool = {"featmap_names": list(maps.values()), "sampling_ratio": 0}
    shared |= {
        "backbone": BackboneWithFPN(resnet, maps, channels, width, norm_layer=norm),
        "num_classes": classes,
        "rpn_anchor_generator": AnchorGenerator(
            tuple((side,) for side in config.anchors), (RATIOS,) * len(config.anchors)
        ),
        "rpn_post_nms_top_n_train": 1000,
        "box_roi_pool": MultiScaleRoIAlign(output_size=7, **pool),
    }
    if not config.masks:
        return FasterRCNN(**shared)
    detector = MaskRCNN(
        mask_roi_pool=MultiScaleRoIAlign(output_size=14, **pool),
        mask_head=MaskRCNNHeads(width, (width,) * 4, dilation=1, norm_layer=norm),
        **shared,
    )
    detector.roi_heads.mask_predictor = MaskRCNNPredictor(width, width, classes)
    return detector


def keep_boxes_in_float32(detector: Any) -> None:
    """Make the boxes of a detector float32 inside autocast as well: bfloat16 turns 986 into 984.

    torchvision gives anchors the type of the maps, and proposals and boxes that of the numbers by
    which the heads move them.
    """
    detector.rpn.anchor_generator.register_forward_pre_hook(_with_float32_maps)
    for head in (detector.rpn.head, detector.roi_heads.box_predictor):
        head.register_forward_hook(lambda head, inputs, output: _in_float32(output))


def _with_float32_maps(generator: nn.Module, inputs: tuple[Any, list[Tensor]]) -> tuple[Any, Any]:
    """The inputs of an anchor generator, with maps of the same sides but without numbers."""
    images, maps = inputs
    sides = [map_BCHW.shape[-2:] for map_BCHW in maps]
    return images, [maps[0].new_empty((0, 0, *HW), dtype=torch.float32) for HW in sides]


def _in_float32(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.float()
    return type(output)(map(_in_float32, output))


def freeze_batchnorm(module: nn.Module) -> None:
    """Replace every BatchNorm below a module by one that keeps weights and statistics as they are.

    `requires_grad` and `eval` would not do: the loop puts the whole module in training mode.
    """
    from torchvision.ops.misc import FrozenBatchNorm2d

    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            frozen = FrozenBatchNorm2d(child.num_features, child.eps)
            frozen.load_state_dict(child.state_dict())
            setattr(module, name, frozen)
        else:
            freeze_batchnorm(child)
