"""Encoders: any timm or torchvision image model by name, as one module with one interface.

Shapes: B batch, L locations of the last feature map (or patch tokens), C features.
Images are RGB in [0, 1]; the encoder normalises them itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mast.core.errors import UserError, unknown
from mast.core.tensors import read_tensors, said_of, write_tensors


class Normalization(NamedTuple):
    """What is subtracted from each colour channel in [0, 1], and what it is divided by then."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# What no resized or interpolated image in [0, 1] reaches, but one of 0 to 255 or one that was
# normalised before.
LOWEST, HIGHEST = -0.5, 1.5
UNSCALED = "divide values of 0 to 255 by 255"
# Without an encoder a run is not complete: its files are written again from the last checkpoint.
RETRAIN = "restore it, or delete encoder.safetensors and run the same `mast pretrain` command again"
NORMALISED = "leave out mean and standard deviation, by which the encoder normalises itself"


@dataclass
class EncoderConfig:
    """Which encoder is trained.

    Attributes:
        name: A torchvision or timm model name, such as "resnet18" or
            "vit_small_patch16_224". A name that both have is torchvision's; the prefixes
            "torchvision:" and "timm:" choose. It names an architecture: pretraining starts from
            random weights.
        options: Keyword arguments of the model's constructor, for example
            {"channels": [32, 64, 128, 256]} for a narrow timm ResNet.
        stem: First layers of a ResNet. "standard": 7x7 stride 2 and max-pooling; "small":
            3x3 without max-pooling; "auto": small for ResNets and views up to 64 pixels.
        stem_stride: Stride of the small stem; 1 for views up to 32 pixels and 2 above if not
            given.
    """

    name: str = "resnet50"
    options: dict[str, Any] = field(default_factory=dict)
    stem: Literal["auto", "standard", "small"] = "auto"
    stem_stride: Literal[1, 2] | None = None


class Encoding(NamedTuple):
    """An encoder's output: the representation (B, C) and the features (B, L, C) it pools."""

    representation_BC: Tensor
    features_BLC: Tensor


class Encoder(nn.Module):
    """An image model without its classifier.

    Calling it gives representations; `encode` gives the unpooled features as well.

    Args:
        config: Name and options.
        size: Side of the views in pixels, for the stem and for models of a fixed input size.
        normalization: Of the images; ImageNet's but for weights that were trained with another.

    Attributes:
        model: The timm or torchvision model; its state dict is what `mast export` writes.
        library: "timm" or "torchvision".
        dim: C, the dimensions of the representation.
        stem_padding: Of the first convolution, where it is not that of the architecture.

    Raises:
        UserError: An unknown name, or options that the model does not take.
    """

    model: Any
    mean: Tensor
    std: Tensor

    def __init__(
        self, config: EncoderConfig, size: int, normalization: Normalization = IMAGENET
    ) -> None:
        super().__init__()
        self.config = config
        self.size = size
        self.normalization = normalization
        self.stem_padding: int | None = None
        self._looked = False  # at images on a GPU
        self.library, name = resolve(config.name)
        build = _torchvision_model if self.library == "torchvision" else _timm_model
        try:
            self.model = build(name, size, config.options)
        except TypeError as error:
            raise UserError(f"encoder {config.name!r}: {error}") from error
        _set_stem(self.model, config, size)
        for moment, values in normalization._asdict().items():
            self.register_buffer(moment, torch.tensor(values).view(3, 1, 1), persistent=False)
        self._family = _torchvision_family(self.model) if self.library == "torchvision" else None
        self.dim = self._measure()

    def pad_stem(self, padding: int) -> None:
        """Pad the first convolution by so many pixels, where another project pads it otherwise."""
        self.stem_padding = None if padding == self.model.conv1.padding[0] else padding
        self.model.conv1.padding = (padding, padding)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Representations (B, C) of images (B, 3, H, W) in [0, 1]."""
        return self.encode(images_BCHW).representation_BC

    def __getstate__(self) -> dict[str, Any]:
        """Without a compiled `encode`: it would run the weights of this encoder in a copy."""
        return {name: value for name, value in self.__dict__.items() if name != "encode"}

    def encode(self, images_BCHW: Tensor) -> Encoding:
        """Representations and unpooled features of images (B, 3, H, W) in [0, 1].

        Raises:
            UserError: The images are no floats, or, outside of training, far from [0, 1].
        """
        _check_type(images_BCHW)
        # Not in training, where images are ours; what is compiled, exported or traced cannot depend
        # on values, and on the meta device are none. Where reading them would wait for a GPU, the
        # first batch must do.
        traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
        if not (self.training or traced or self._looked or images_BCHW.is_meta):
            _check_range(images_BCHW)
            self._looked = images_BCHW.device.type != "cpu"
        images_BCHW = (images_BCHW - self.mean) / self.std
        if self._family is not None:
            return self._family(self.model, images_BCHW)
        output = self.model.forward_features(images_BCHW)
        representation_BC = self.model.forward_head(output, pre_logits=True)
        if output.ndim == 3:  # tokens, the class and register tokens first
            return Encoding(
                representation_BC, output[:, getattr(self.model, "num_prefix_tokens", 0) :]
            )
        if getattr(self.model, "output_fmt", "NCHW") == "NHWC":
            return Encoding(representation_BC, output.flatten(1, 2))
        return Encoding(representation_BC, _locations(output))

    @torch.no_grad()
    def _measure(self) -> int:
        """Run two blank images to learn C, whatever the model calls it."""
        training = self.model.training
        self.eval()
        dim = self.forward(torch.zeros(2, 3, self.size, self.size)).shape[1]
        self.train(training)
        return dim

    def freeze_behind_features(self) -> None:
        """Freeze what the representation needs and the features do not: a norm behind the pooling.

        For an objective over the features alone, in which such parameters get no gradient.
        """
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        training = self.model.training
        self.eval()
        with torch.enable_grad():
            blank_BCHW = torch.zeros(1, 3, self.size, self.size, device=self.mean.device)
            total = self.encode(blank_BCHW).features_BLC.sum()
        self.train(training)
        gradients = torch.autograd.grad(total, trained, allow_unused=True)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.requires_grad_(gradient is not None)

    def describe(self) -> dict[str, Any]:
        """What rebuilds this encoder, as stored in the header of `encoder.safetensors`.

        The normalization is named where it is not ImageNet's.
        """
        described: dict[str, Any] = {"encoder": asdict(self.config), "size": self.size}
        if self.normalization != IMAGENET:
            described["normalization"] = self.normalization._asdict()
        if self.stem_padding is not None:
            described["stem_padding"] = self.stem_padding
        return described


def _check_type(images_BCHW: Tensor) -> None:
    if not images_BCHW.is_floating_point():
        kind = str(images_BCHW.dtype).removeprefix("torch.")
        raise UserError(f"expected images as RGB float in [0, 1], got {kind}: {UNSCALED}")


def _check_range(images_BCHW: Tensor) -> None:
    """Costs less than a thousandth of a ResNet-18's pass over the images."""
    if not images_BCHW.numel():
        return
    low, high = torch.stack(images_BCHW.detach().aminmax()).tolist()
    if low < LOWEST or high > HIGHEST:
        raise UserError(
            f"expected images as RGB float in [0, 1], got values from {low:.3g} to {high:.3g}: "
            f"{NORMALISED if low < LOWEST else UNSCALED}"
        )


def save_encoder(encoder: Encoder, path: Path) -> None:
    """Write weights and everything that rebuilds the encoder into one safetensors file."""
    write_tensors(path, encoder.model.state_dict(), encoder.describe())


def load_encoder(path: str | Path) -> Encoder:
    """Load the encoder of a run.

    Args:
        path: A run folder, or an `encoder.safetensors` file.

    Returns:
        The encoder in evaluation mode, on the CPU. It takes images (B, 3, H, W) in [0, 1].

    Raises:
        UserError: No such file, a damaged one, or one that `mast pretrain` did not write.
    """
    path = Path(path)
    file = path / "encoder.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"no encoder at {file}: give a finished run folder or its encoder.safetensors"
        )
    of_a_run = (file.parent / "config.yaml").is_file()
    tensors, header = read_tensors(file, RETRAIN if of_a_run else "restore it")
    described = said_of(header)
    if "classifier" in described:
        raise UserError(f"{file} is a classifier, for `mast predict` and mast.load_classifier")
    if "encoder" not in described:
        raise UserError(f"{file} was not written by `mast pretrain`: its header names no encoder")
    return described_encoder(described, tensors, file)


def described_encoder(
    described: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path
) -> Encoder:
    """An encoder from what `Encoder.describe` said of it, and its weights.

    Args:
        described: What it said.
        tensors: The state dict of its `model`.
        file: Which holds both.

    Returns:
        The encoder in evaluation mode, on the CPU.

    Raises:
        UserError: They do not fit together, or this version has no such encoder.
    """
    try:
        normalization = IMAGENET
        if "normalization" in described:
            normalization = read_normalization(**described["normalization"])
        encoder = Encoder(EncoderConfig(**described["encoder"]), described["size"], normalization)
        if "stem_padding" in described:
            encoder.pad_stem(described["stem_padding"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file}: its header describes no encoder of this version: {error}"
        ) from error
    try:
        encoder.model.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(f"{file} does not hold the weights that its header describes") from error
    return encoder.eval()


def read_normalization(mean: Sequence[float], std: Sequence[float]) -> Normalization:
    """A normalization from the header of a file.

    Raises:
        ValueError: It is not one of three channels, or divides by what is not positive.
    """
    read = Normalization(tuple(map(float, mean)), tuple(map(float, std)))
    if {len(read.mean), len(read.std)} != {3} or min(read.std) <= 0:
        raise ValueError(f"expected mean and std of three channels, got {read}")
    return read


def resolve(name: str) -> tuple[Literal["timm", "torchvision"], str]:
    """Split "library:model", or look the bare name up, torchvision first.

    Raises:
        UserError: Neither has such a model.
    """
    import timm
    import torchvision

    torchvision_names = torchvision.models.list_models(module=torchvision.models)
    library, _, model = name.rpartition(":")
    if library == "torchvision" and model not in torchvision_names:
        raise unknown("torchvision encoder", model, torchvision_names)
    if library not in ("", "timm", "torchvision"):
        raise unknown("encoder library", library, ("timm", "torchvision"))
    if library != "timm" and model in torchvision_names:
        return "torchvision", model
    architecture = model.split(".")[0]  # a timm name may carry a ".tag" of pretrained weights
    if not timm.is_model(architecture):
        if library == "timm":
            raise unknown("timm encoder", model, timm.list_models())
        raise unknown("encoder", model, [*torchvision_names, *timm.list_models()])
    return "timm", model


def _timm_model(name: str, size: int, options: dict[str, Any]) -> nn.Module:
    import timm

    options = dict(options)
    pretrained = timm.get_pretrained_cfg(name)
    if pretrained is not None and pretrained.fixed_input_size:
        options.setdefault("img_size", size)
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    return model


def _torchvision_model(name: str, size: int, options: dict[str, Any]) -> nn.Module:
    import torchvision

    options = dict(options)
    if name.startswith(("resnet", "resnext", "wide_resnet")):
        # VICReg's encoder starts every residual branch at zero.
        options.setdefault("zero_init_residual", True)
    if name.startswith("vit"):
        options.setdefault("image_size", size)
    model: nn.Module = torchvision.models.get_model(name, weights=None, **options)
    for head in ("fc", "classifier", "head", "heads"):
        if hasattr(model, head):
            setattr(model, head, nn.Identity())
    return model


def _set_stem(model: nn.Module, config: EncoderConfig, size: int) -> None:
    """Replace the first layers of a ResNet by the small-image stem where it is wanted."""
    is_resnet = type(model).__name__ == "ResNet"
    if config.stem == "standard" or (config.stem == "auto" and (size > 64 or not is_resnet)):
        return
    if not is_resnet:
        raise UserError(f"stem 'small' is for ResNets; {config.name!r} has none, use stem 'auto'")
    stride = config.stem_stride or (1 if size <= 32 else 2)
    first = model.get_submodule("conv1")
    if isinstance(first, nn.Sequential):  # a deep stem: three 3x3 convolutions
        deep = first[0]
        assert isinstance(deep, nn.Conv2d)
        deep.stride = (stride, stride)
    else:
        assert isinstance(first, nn.Conv2d)
        conv = nn.Conv2d(3, first.out_channels, 3, stride=stride, padding=1, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        model.register_module("conv1", conv)
    model.register_module("maxpool", nn.Identity())


Family = Callable[[Any, Tensor], Encoding]


def _residual(model: Any, x: Tensor) -> Encoding:
    x = model.maxpool(model.relu(model.bn1(model.conv1(x))))
    return _pooled(model.layer4(model.layer3(model.layer2(model.layer1(x)))))


def _tokens(model: Any, x: Tensor) -> Encoding:
    x = model._process_input(x)
    x = model.encoder(torch.cat([model.class_token.expand(len(x), -1, -1), x], dim=1))
    return Encoding(x[:, 0], x[:, 1:])


def _shuffle(model: Any, x: Tensor) -> Encoding:
    x = model.stage2(model.maxpool(model.conv1(x)))
    return _pooled(model.conv5(model.stage4(model.stage3(x))))


def _swin(model: Any, x: Tensor) -> Encoding:
    return _pooled(model.permute(model.norm(model.features(x))))


FAMILIES: dict[str, Family] = {
    "ResNet": _residual,
    "VisionTransformer": _tokens,
    "ShuffleNetV2": _shuffle,
    "RegNet": lambda model, x: _pooled(model.trunk_output(model.stem(x))),
    "MNASNet": lambda model, x: _pooled(model.layers(x)),
    "DenseNet": lambda model, x: _pooled(model.features(x).relu()),
    "SwinTransformer": _swin,
}


def _torchvision_family(model: nn.Module) -> Family:
    """How torchvision's models of this kind give their last feature map.

    The model is an argument, not bound: a copy of an encoder must run its own weights.
    """
    family = type(model).__name__
    if family in FAMILIES:
        return FAMILIES[family]
    if hasattr(model, "features"):  # AlexNet, VGG, SqueezeNet, MobileNet, EfficientNet, ConvNeXt
        return lambda model, x: _pooled(model.features(x))
    raise UserError(f"torchvision's {family} has no single feature map; use timm's version of it")


def _pooled(map_BCHW: Tensor) -> Encoding:
    features_BLC = _locations(map_BCHW)
    return Encoding(features_BLC.mean(dim=1), features_BLC)


def _locations(map_BCHW: Tensor) -> Tensor:
    return map_BCHW.flatten(2).transpose(1, 2)
