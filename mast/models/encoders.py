"""Encoders: any timm or torchvision image model by name, as one module with one interface.

Shapes: B batch, L locations of the last feature map (or patch tokens), C features.
Images are in [0, 1], usually RGB, always of as many channels as the encoder's mean has numbers; the
encoder normalises them itself.
"""

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_type_hints

import torch
from torch import Tensor, nn

from mast.core.arguments import argument, in_short
from mast.core.entry import entry
from mast.core.errors import UserError, unknown
from mast.core.memory import bounded_weights
from mast.core.reading import MOST_CHANNELS, Reading, read_reading
from mast.core.seeds import forked
from mast.core.tensors import check_finite, read_metadata, read_tensors, write_tensors
from mast.models.layouts import first_keys
from mast.models.lora import merged
from mast.models.torchvision_models import Encoding, family_of, torchvision_model

Moment = tuple[float, ...]  # of the channels


class Normalization(NamedTuple):
    """What is subtracted from each channel in [0, 1], and what it is divided by then."""

    mean: Moment
    std: Moment


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# No resized or interpolated image in [0, 1] is beyond, but one of 0 to 255 or one that was
# normalised before.
LOWEST, HIGHEST = -0.5, 1.5
UNSCALED = "divide values of 0 to 255 by 255"
# Without an encoder a run is not complete: its files are written again from the last checkpoint.
RETRAIN = "restore it, or delete encoder.safetensors and run the same `mast pretrain` command again"
# What rebuilds an encoder, with the normalisation.
ARCHITECTURE = ("name", "options", "stem", "stem_stride")
HEAD = "head"  # in the header of an exported classifier, the keys that are not the encoder's
ZERO_INIT = "zero_init_residual"  # of torchvision's ResNets
LARGEST = 2048  # pixels: side of the largest image
# Arguments of constructors that `EncoderConfig.options` may not hold: files, weights, devices, and
# what decides which images come in and which classes come out.
NO_ARCHITECTURE = frozenset({
    "cache_dir", "checkpoint_path", "device", "dtype", "exportable", "feature_cfg",
    "features_only", "in_chans", "kwargs_filter", "model_cfg", "no_jit", "num_classes",
    "out_indices", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay",
    "pretrained_filter_fn", "pretrained_strict", "progress", "scriptable", "weights",
})  # fmt: skip
MOST_VALUE, MOST_VALUES = 2**14, 64  # of a number in an option; of the values of a list
WORD = re.compile(r"[\w.-]{0,64}", re.ASCII)
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
MOST_MOMENT = 1e6  # of a channel


def usual_normalization(channels: int) -> Normalization:
    """The default normalization: ImageNet's for 3 channels."""
    return IMAGENET if channels == 3 else Normalization((0.5,) * channels, (0.25,) * channels)


@dataclass
class EncoderConfig:
    """Which encoder is trained.

    Attributes:
        name: A torchvision or timm model name, such as "resnet18" or
            "vit_small_patch16_224". A name in both means torchvision's; choose with the prefix
            "torchvision:" or "timm:". An architecture, not weights.
        options: Keyword arguments of the model's constructor that change its architecture, for
            example {"channels": [32, 64, 128, 256]} for a narrow timm ResNet, or
            {"drop_path_rate": 0.1}.
        stem: First layers of a ResNet. "standard": 7x7 stride 2 and max-pooling; "small":
            3x3 without max-pooling; "auto": small for ResNets and views up to 64 pixels.
        stem_stride: Stride of the small stem; 1 for views up to 32 pixels and 2 above if not
            given.
        stem_padding: Padding of the small stem's convolution, 2 in solo-learn.
        mean: Mean of each channel in [0, 1], one number per channel; ImageNet's by default.
        std: Standard deviation of each channel.
        weights: Starting weights; random by default. A run folder, a checkpoint that
            `mast evaluate` recognizes, or a name with a tag, such as
            "timm:vit_small_patch14_dinov2.lvd142m". Architecture, stem and normalization then
            come from the weights, options extend theirs, and conflicting fields are refused. For
            non-RGB images, the first layer's RGB weights repeat over the channels, and mean and
            std are the ones given here. Another project's file does not record the normalization
            and says little of the architecture: give name (perhaps with a tag), options, mean, std
            and stem_stride.
        freeze: Freeze the encoder and train the rest: projector, masks, heads.
        freeze_statistics: Keep BatchNorm's statistics frozen at those of the weights.
        lora: Rank of LoRA: linear layers and convolutions change by products of two matrices of
            this rank; other weights are frozen, BatchNorm's statistics by freeze_statistics alone.
            The saved encoder has the changes merged.
    """

    name: str = "resnet50"
    options: dict[str, Any] = field(default_factory=dict)
    stem: Literal["auto", "standard", "small"] = "auto"
    stem_stride: Literal[1, 2] | None = None
    stem_padding: Literal[0, 1, 2] = 1
    mean: Moment = IMAGENET.mean
    std: Moment = IMAGENET.std
    weights: str | None = None
    freeze: bool = False
    freeze_statistics: bool = False
    lora: int | None = None

    @property
    def normalization(self) -> Normalization:
        """Mean and standard deviation by which the encoder normalises images."""
        return Normalization(self.mean, self.std)

    @property
    def channels(self) -> int:
        """The number of channels of the images."""
        return len(self.mean)

    def check(self) -> None:
        """Refuse values that cannot be."""
        for name in ("name", "stem", "stem_stride", "stem_padding"):
            argument(getattr(self, name), get_type_hints(EncoderConfig)[name], f"encoder.{name}")
        read_normalization(self.mean, self.std)
        check_options(self.options)
        if self.weights == "":
            raise UserError("encoder.weights: expected a name or a file, got nothing")
        for name in ("freeze", "freeze_statistics", "lora"):
            if getattr(self, name) and self.weights is None:
                raise UserError(f"encoder.{name}: expected encoder.weights with it, got none")
        if self.lora is not None and (self.lora < 1 or self.freeze):
            raise UserError(
                "encoder.lora: expected a rank from 1, and encoder.freeze false, got rank "
                f"{self.lora} and {str(self.freeze).lower()}"
            )


class Encoder(nn.Module):
    """An image model without its classifier.

    Calling it gives representations; `encode` gives the unpooled features as well.

    Args:
        config: Which one; its weights are random here.
        size: Side of the views in pixels, for the stem and for models of a fixed input size.

    Attributes:
        model: The timm or torchvision model; its state dict is what `mast export` writes.
        library: "timm" or "torchvision".
        dim: C, the dimensions of the representation.
        locations: L, of the map of features that it pools, of images of that size.
        map_dim: Dimensions of these features; C for most.
        reading: How the values of files became the images that it learned from; None: as those of
            8-bit RGB.

    Raises:
        UserError: An unknown name, or options that the model does not take.
    """

    model: Any
    mean: Tensor
    std: Tensor

    def __init__(self, config: EncoderConfig, size: int) -> None:
        super().__init__()
        self.config = config
        self.size = size
        self.reading: Reading | None = None
        self.model = build_model(config, size)
        self.library = resolve(config.name)[0]
        for moment, values in config.normalization._asdict().items():
            self.register_buffer(moment, torch.tensor(values).view(-1, 1, 1), persistent=False)
        self._family = family_of(self.model) if self.library == "torchvision" else None
        with _in_one_line(config, size):
            self.dim, self.locations, self.map_dim = self._measure()

    @property
    def channels(self) -> int:
        """The number of channels of its images."""
        return self.config.channels

    def blank(self, count: int, side: int | None = None) -> Tensor:
        """Black images on the device of the weights, by default of the encoder's size."""
        side = self.size if side is None else side
        return torch.zeros(count, self.channels, side, side, device=self.mean.device)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Representations (B, C) of images (B, channels, H, W) in [0, 1]."""
        return self.encode(images_BCHW).representation_BC

    def __getstate__(self) -> dict[str, Any]:
        """Without a compiled `encode`: it would run the weights of this encoder in a copy."""
        return {name: value for name, value in self.__dict__.items() if name != "encode"}

    def encode(self, images_BCHW: Tensor) -> Encoding:
        """Representations and unpooled features of images (B, channels, H, W) in [0, 1]."""
        check_images(self, images_BCHW)
        if images_BCHW.dtype is torch.float64:  # weights are seldom float64
            images_BCHW = images_BCHW.to(self.mean.dtype)
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
        return Encoding(representation_BC, output.flatten(2).transpose(1, 2))

    @torch.no_grad()
    def _measure(self) -> tuple[int, int, int]:
        """Run two blank images to learn the shapes of what the model returns."""
        representation_BC, features_BLC = self._blank_encoding(self.size)
        shapes = tuple(representation_BC.shape), tuple(features_BLC.shape)
        if [len(shape) for shape in shapes] != [2, 3] or 0 in (*shapes[0], *shapes[1]):
            raise ValueError(f"it gives {shapes} of two images, not (2, C) and (2, L, C)")
        return shapes[0][1], shapes[1][1], shapes[1][2]

    def _blank_encoding(self, side: int) -> Encoding:
        """The encoding of two blank images, whose pixels all lie in patches of the first layer."""
        convolutions = [part for part in self.model.modules() if isinstance(part, nn.Conv2d)]
        with evaluating(self), ExitStack() as hooks:
            for first in convolutions[:1]:
                hooks.enter_context(first.register_forward_pre_hook(self._check_patches))
            return self.encode(self.blank(2, side))

    def _check_patches(self, first: nn.Conv2d, inputs: tuple[Tensor]) -> None:
        """Refuse images that whole patches do not fill, except those of the model's own size."""
        side = inputs[0].shape[-1]
        over, patch = max((side % patch, patch) for patch in first.kernel_size)
        if not over or first.stride != first.kernel_size or any(first.padding):
            return
        if self.library == "timm":
            import timm

            made_for = timm.get_pretrained_cfg(resolve(self.config.name)[1])
            if made_for is not None and made_for.input_size[-1] == side:
                return
        raise UserError(
            f"size: expected a multiple of {patch} pixels, the side of the patches of encoder "
            f"{self.config.name!r}, which would miss the last {over} pixels of each row and "
            f"column, got {side}; give {side - over + patch}"
        )

    @torch.no_grad()
    def check_side(self, side: int) -> None:
        """Refuse views whose side, in pixels, the model cannot take or does not see whole."""
        hint = "; a ViT of timm can with encoder.options dynamic_img_size: true"
        with _in_one_line(self.config, side, hint):
            self._blank_encoding(side)

    def freeze_behind_features(self) -> None:
        """Freeze what the representation needs and the features do not: a norm behind the pooling.

        For an objective over the features alone, in which such parameters get no gradient.
        """
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        with evaluating(self), torch.enable_grad():
            total = self.encode(self.blank(1)).features_BLC.sum()
        gradients = torch.autograd.grad(total, trained, allow_unused=True)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.requires_grad_(gradient is not None)

    def weights_of(self, source: "Encoder") -> dict[str, Tensor]:
        """The state dict of another encoder's model, for the channels of this one.

        Weights of RGB are repeated over other channels in their order, R, G, B, R, …, and
        multiplied by 3 / channels; for one channel they are summed.

        Reference:
            timm, `adapt_input_conv`.
        """
        from timm.models import adapt_input_conv

        theirs, ours = source.model.state_dict(), self.model.state_dict()
        if source.channels == self.channels:
            return dict(theirs)
        return {
            key: adapt_input_conv(self.channels, tensor)
            if tensor.ndim == 4 and key in ours and tensor.shape != ours[key].shape
            else tensor
            for key, tensor in theirs.items()
        }

    def describe(self) -> dict[str, Any]:
        """What rebuilds this encoder, as stored in the header of `encoder.safetensors`.

        The normalization is named where it is not ImageNet's.
        """
        values = asdict(self.config)
        described: dict[str, Any] = {
            "encoder": {name: values[name] for name in ARCHITECTURE},
            "size": self.size,
        }
        if self.config.normalization != IMAGENET:
            described["normalization"] = self.config.normalization._asdict()
        if self.config.stem_padding != 1:
            described["stem_padding"] = self.config.stem_padding
        if self.reading is not None:
            described["reading"] = asdict(self.reading)
        return described


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every submodule in evaluation mode, and restore each one's mode.

    `module.train(was)` would not do: it thaws a batch normalisation that was frozen on purpose.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def copied(module: nn.Module) -> nn.Module:
    """A copy of a user's module, without `torch.compile`, which does not run the hooks of parts."""
    try:
        with torch.no_grad():  # in which those of TorchScript are computed
            copy = deepcopy(module)
    except Exception as error:  # of the user's own code
        raise UserError(
            f"encoder {type(module).__name__} cannot be copied ({' '.join(str(error).split())}): "
            "take weight norms of torch.nn.utils.parametrizations, and keep no computed tensors"
        ) from error
    for part in [*copy.modules()]:
        for name, child in [*part.named_children()]:
            if hasattr(child, "_orig_mod"):
                setattr(part, name, child._orig_mod)
    return getattr(copy, "_orig_mod", copy)


def check_images(module: nn.Module, images_BCHW: Tensor) -> None:
    """Refuse input that is no batch of images in [0, 1].

    Values are not checked in training, where images are our own, in compiled or exported code, or
    on the meta device. On a GPU, where reading values would synchronize, only the first batch is
    checked. The check costs less than a thousandth of a ResNet-18's forward pass.
    """
    if torch.compiler.is_compiling():
        return
    channels, batch = channels_of(module), isinstance(images_BCHW, Tensor) and images_BCHW.ndim == 4
    if not batch or images_BCHW.shape[1] != channels or 0 in images_BCHW.shape[2:]:
        raise UserError(f"expected images (B, {channels}, H, W), got {in_short(images_BCHW)}")
    if not images_BCHW.is_floating_point():
        kind = str(images_BCHW.dtype).removeprefix("torch.")
        raise UserError(f"expected images as floats in [0, 1], got {kind}: {UNSCALED}")
    looked = images_BCHW.is_meta or module.__dict__.get("_range_checked")
    if module.training or looked or not images_BCHW.numel():
        return
    low, high = torch.stack(images_BCHW.detach().aminmax()).tolist()
    if not (low >= LOWEST and high <= HIGHEST):  # NaN, which `aminmax` passes on, is neither
        normalised = "leave out mean and standard deviation, by which the encoder normalises itself"
        remedy = "look for NaN in what made them" if math.isnan(low) else UNSCALED
        raise UserError(
            f"expected images as RGB float in [0, 1], got values from {low:.3g} to {high:.3g}: "
            f"{normalised if low < LOWEST else remedy}"
        )
    if images_BCHW.device.type != "cpu":
        module.__dict__["_range_checked"] = True


def checked_for(encoder: nn.Module, module: nn.Module, images_BCHW: Tensor) -> Tensor:
    """The images in float32 that a module of ours shows to an encoder of the user's own."""
    if isinstance(encoder, Encoder):  # which looks at them itself
        return images_BCHW
    check_images(module, images_BCHW)
    return images_BCHW.float()


def check_representation(given: Any, images_BCHW: Tensor) -> None:
    """Refuse what a user's module gives if it is no dense batch of vectors of floats."""
    shaped = isinstance(given, Tensor) and given.ndim == 2 and given.layout is torch.strided
    if torch.compiler.is_compiling() or (  # where the number of images is open
        shaped and len(given) == len(images_BCHW) and given.shape[1] and given.is_floating_point()
    ):
        return
    raise UserError(
        f"expected the encoder to return dense floats of shape ({len(images_BCHW)}, D), D 1 or "
        f"more, and nothing else, got {in_short(given)}: pool its feature map first"
    )


def save_encoder(encoder: Encoder, path: Path) -> None:
    """Write weights and everything that rebuilds the encoder into one safetensors file."""
    write_tensors(path, merged(encoder.model.state_dict()), encoder.describe())


@entry(draws=True)
def load_encoder(path: str | Path) -> Encoder:
    """Load the encoder of a run.

    Args:
        path: A run folder, or an `encoder.safetensors` file.

    Returns:
        The encoder in evaluation mode, on the CPU. It takes images (B, channels, H, W) in [0, 1].

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
    described = read_metadata(header)
    if "classifier" in described:
        raise UserError(f"{file} is a classifier, for `mast predict` and mast.load_classifier")
    if "encoder" not in described:
        raise UserError(f"{file} was not written by `mast pretrain`: its header names no encoder")
    # The file of an exported classifier has its head, too.
    own = {key: of for key, of in tensors.items() if key not in described.get(HEAD, ())}
    return described_encoder(described, own, file)


def described_encoder(
    described: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path
) -> Encoder:
    """An encoder in evaluation mode, from what `Encoder.describe` gave and its model's weights.

    Errors name the file that holds both.
    """
    try:
        padding = described.get("stem_padding", 1)
        config = EncoderConfig(**described["encoder"], stem_padding=padding)
        if "normalization" in described:
            normalization = read_normalization(**described["normalization"])
            config = replace(config, **normalization._asdict())
        config.check()
        with bounded_weights(2 * len(tensors) + 64):  # a head and a stem are built and replaced
            load_whole(weightless_model(config, described["size"]), tensors)
        with forked():  # the first weights are drawn, only to be replaced
            encoder = Encoder(config, described["size"])
        if "reading" in described:
            encoder.reading = read_reading(described["reading"], encoder.channels)
        check_finite(file, tensors)
        load_whole(encoder.model, tensors)
        return encoder.eval()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(
            f"{file} holds no encoder of this version, or not the weights of its header: {error}"
        ) from error


def channels_of(module: nn.Module) -> int:
    """Of a module's images: three where it has no `reading`, as a user's own has none."""
    known = isinstance(getattr(module, "reading", 0), Reading | None)
    return cast(int, getattr(module, "channels", 3)) if known else 3


def load_whole(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load a state dict whole, or refuse it in one line; a module on the meta device only checks.

    Counts of batches may be missing, which PyTorch before 0.4.1 did not keep and nothing here uses.
    """
    own, problems = module.state_dict(), dict[str, list[str]]()
    problems["keys of another type"] = [
        f"{key} {tensor.dtype}"
        for key, tensor in tensors.items()
        if key in own and tensor.dtype not in {*FLOATS, own[key].dtype}
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is not copied to the meta device
            missing, unexpected = module.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise UserError(f"{' '.join(str(error).split())[:500]}") from error
    optional = ("num_batches_tracked", "_extra_state")
    problems["missing keys"] = [key for key in missing if not key.endswith(optional)]
    problems["unexpected keys"] = unexpected
    if any(problems.values()):
        listed = (f"{problem}: {first_keys(keys)}" for problem, keys in problems.items() if keys)
        raise UserError("; ".join(listed))


def read_normalization(mean: Sequence[float], std: Sequence[float]) -> Normalization:
    """A normalization of 1 to 16 channels, from a configuration or the header of a file."""
    try:
        moments = Normalization(tuple(map(float, mean)), tuple(map(float, std)))
        if (
            1 <= len(moments.mean) == len(moments.std) <= MOST_CHANNELS
            and all(abs(value) <= MOST_MOMENT for value in moments.mean + moments.std)
            and min(moments.std) >= 1 / MOST_MOMENT
        ):
            return moments
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(
        "encoder.mean and encoder.std: expected finite means and positive standard deviations up "
        f"to {MOST_MOMENT:g} of the same 1 to {MOST_CHANNELS} channels, got {in_short(mean)} and "
        f"{in_short(std)}"
    )


def check_size(size: int) -> None:
    """Refuse a side of images, in pixels, that is out of range."""
    if not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise UserError(f"size: expected 1 to {LARGEST} pixels, got {in_short(size)}")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of an encoder that are more than numbers and words of its architecture.

    The headers of files have some. Which of the names a model takes is for its library to say.
    """
    for name, value in options.items():
        if name in NO_ARCHITECTURE or not name.isidentifier():
            raise UserError(f"encoder.options: expected those of an architecture, got {name!r:.80}")
        if not _is_literal(value):
            raise UserError(
                f"encoder.options.{name}: expected a number up to {MOST_VALUE:,}, true, false, "
                f"null, a word or a list of at most {MOST_VALUES} of these, got {in_short(value)}"
            )
        rate = isinstance(value, int | float) and 0 <= value <= 1
        if "drop" in name and not (value is None or rate):  # some are read in training alone
            raise UserError(
                f"encoder.options.{name}: expected a number in [0, 1], got {in_short(value)}"
            )


def _is_literal(value: Any, lists: int = 2) -> bool:
    if isinstance(value, list | tuple):
        few = lists > 0 and len(value) <= MOST_VALUES
        return few and all(_is_literal(each, lists - 1) for each in value)
    if isinstance(value, str):
        return WORD.fullmatch(value) is not None
    return value is None or (type(value) in (bool, int, float) and abs(value) <= MOST_VALUE)


def resolve(name: str) -> tuple[Literal["timm", "torchvision"], str]:
    """Split "library:model", or look the bare name up, torchvision first."""
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


def build_model(config: EncoderConfig, size: int) -> nn.Module:
    """The model of an encoder, with random weights, by its library."""
    check_size(size)
    library, name = resolve(config.name)
    check_options(config.options)
    with bounded_weights():
        with _in_one_line(config, size):
            options = arguments(config, size)
            if library == "torchvision":
                model = torchvision_model(name, options, config.channels)
            else:
                import timm

                model = timm.create_model(name, pretrained=False, num_classes=0, **options)
        _set_stem(model, config, size)
    return model


def arguments(config: EncoderConfig, size: int) -> dict[str, Any]:
    """The arguments of the constructor of an encoder's model, its options among them."""
    import timm

    library, name = resolve(config.name)
    own: dict[str, Any] = {}
    if library == "timm":
        pretrained = timm.get_pretrained_cfg(name)
        own = {} if config.channels == 3 else {"in_chans": config.channels}
        if pretrained is not None and pretrained.fixed_input_size:
            own["img_size"] = size
    elif name.startswith(("resnet", "resnext", "wide_resnet")):
        own = {ZERO_INIT: True}  # VICReg's encoder starts every residual branch at zero
    elif name.startswith("vit"):
        own = {"image_size": size}
    return own | config.options


def weightless_model(config: EncoderConfig, size: int) -> nn.Module:
    """The same on the meta device, for the names, shapes and types of its weights.

    With weights where a model reads numbers while it is built, as torchvision's RegNet does, which
    has no options that could make it large.
    """
    try:
        with torch.device("meta"):
            return build_model(config, size)
    except UserError as error:
        if "meta tensor" not in str(error):
            raise
    return build_model(config, size)


@contextmanager
def _in_one_line(config: EncoderConfig, size: int, hint: str = "") -> Iterator[None]:
    """Report in one line any error of a library's own code."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        options = f" with encoder.options {config.options}"[:300] if config.options else ""
        raise UserError(
            f"encoder {config.name!r:.200} cannot take images of {size} pixels{options}: "
            f"{type(error).__name__}: {' '.join(str(error).split())!r:.300}{hint}"
        ) from error


def stem_stride(model: nn.Module, config: EncoderConfig, size: int) -> Literal[1, 2] | None:
    """The stride of a model's small stem; None where its stem is the standard one."""
    is_resnet = type(model).__name__ == "ResNet"
    if config.stem == "standard" or (config.stem == "auto" and (size > 64 or not is_resnet)):
        return None
    if not is_resnet:
        raise UserError(f"encoder.stem: expected auto, as {config.name!r} is no ResNet, got small")
    return config.stem_stride or (1 if size <= 32 else 2)


def _set_stem(model: nn.Module, config: EncoderConfig, size: int) -> None:
    """Replace the first layers of a ResNet by the small-image stem where it is wanted."""
    stride = stem_stride(model, config, size)
    first: Any = None if stride is None else model.get_submodule("conv1")
    if config.stem_padding != 1 and not isinstance(first, nn.Conv2d):
        raise UserError(
            "encoder.stem_padding: expected 1, as the encoder has no small stem of one "
            f"convolution, got {config.stem_padding}"
        )
    if stride is None:
        return
    if isinstance(first, nn.Sequential):  # a deep stem: three 3x3 convolutions
        deep: Any = first[0]
        deep.stride = (stride, stride)
    else:
        conv = nn.Conv2d(
            config.channels, first.out_channels, 3, stride, config.stem_padding, bias=False
        )
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        model.register_module("conv1", conv)
    model.register_module("maxpool", nn.Identity())
