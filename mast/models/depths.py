"""The pooled maps of several depths of an encoder, side by side.

Shapes: B images, C channels of a map, H and W its sides, T tokens, F numbers of all depths.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from mast.core.arguments import as_list
from mast.core.errors import UserError, reason_of, unknown
from mast.models.encoders import (
    Encoder,
    channels_of,
    check_representation,
    checked_for,
    evaluating,
)
from mast.models.torchvision_models import Encoding

TOKENS = 4  # blocks of a transformer that are read
SAME = 1e-3  # as a share
OUTPUT = "output"  # the last depth, the representation itself


class Layer(NamedTuple):
    """What a layer gives: axes, places, their mean, and that of their absolute values."""

    axes: int
    places: int
    part_BC: Tensor
    size_BC: Tensor


class Depths(nn.Module):
    """Several depths of an encoder: (B, channels, H, W) to (B, F).

    Of maps the mean over their places is read, of tokens the class token and the mean of the
    others. The last depth is what the encoder gives.

    Args:
        encoder: From images in [0, 1] to (B, D).
        size: Side of its views in pixels.
        layers: Names of its submodules, in the order of their depth; () reads the output alone. If
            not given, of maps those behind which they become smaller, of tokens some, evenly
            spaced; of a module of another kind the output alone.

    Attributes:
        layers: The names of the depths, the last `OUTPUT`.
        shallow: Of these, those before the encoder's last block.
        widths: How many numbers each has; F is their sum.
        sizes: What each gives of noise, of maps of their absolute values: a share of it is
            rounding.

    Raises:
        UserError: A name that is none of its submodules, or that gives no maps or tokens.
    """

    def __init__(self, encoder: nn.Module, size: int, layers: Sequence[str] | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.size = size
        modules = {
            name: part
            for name, part in encoder.named_modules()
            if not isinstance(part, torch.jit.ScriptModule)  # which takes no hooks
        }
        layers = None if layers is None else as_list(layers)
        for name in layers or ():
            if not name or name not in modules:
                raise unknown("layer", name, [*filter(None, modules)])
        if layers is not None and len(set(layers)) < len(layers):
            raise UserError(f"layers names one twice: {', '.join(layers)}")
        own = [name for name in _candidates(encoder) if name in modules]
        found, output_BD = self._probed(own if layers is None else list(layers))
        if layers is None:
            names = _default_layers(found)
        else:
            names = list(layers)
            for name in names:
                if name not in found:
                    raise UserError(f"the layer {name} gives neither maps nor tokens of an image")
        if names and _same(found[names[-1]].part_BC, output_BD):
            names = names[:-1]  # the output is the mean of the last map
        self.layers = (*names, OUTPUT)
        last = found[names[-1]] if names else None
        ends = last and (last.axes == 3 or last.places == getattr(encoder, "locations", None))
        self.shallow = tuple(names[:-1] if ends else names)  # which ends in the last map
        self.sizes = (*(found[name].size_BC for name in names), output_BD)
        self.widths = tuple(part_BC.shape[1] for part_BC in self.sizes)

    @property
    def dim(self) -> int:
        """F, of all depths."""
        return sum(self.widths)

    @property
    def channels(self) -> int:
        """Of the images."""
        return channels_of(self.encoder)

    @property
    def reading(self) -> Any:
        """How files become its images."""
        return getattr(self.encoder, "reading", None)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """All depths in float32, the shallowest first."""
        images_BCHW = checked_for(self.encoder, self, images_BCHW)
        with _outputs(self.encoder, self.layers[:-1]) as outputs:
            output_BD = self.encoder(images_BCHW)
        check_representation(output_BD, images_BCHW)
        pooled = [self.pooled(outputs.get(name)) for name in self.layers[:-1]]
        return torch.cat([*pooled, output_BD.float()], dim=1)

    def noise(self) -> Tensor:
        """Two images, always the same."""
        generator = torch.Generator().manual_seed(0)
        shape = (2, self.channels, self.size, self.size)
        images_BCHW = torch.rand(shape, generator=generator)
        tensors = [*self.encoder.parameters(), *self.encoder.buffers(), images_BCHW]
        return images_BCHW.to(tensors[0].device)

    def pooled(self, output: Any) -> Tensor:
        """A depth, from what its layer gives."""
        part_BC = self._pooled(output)
        if part_BC is None:
            raise UserError("a layer that is read gave neither maps nor tokens of these images")
        return part_BC

    def _pooled(self, output: Any) -> Tensor | None:
        """The mean of a map, (B, C), or a class token and the mean of the others, (B, 2 C)."""
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        model = getattr(self.encoder, "model", None)
        output = output.float()
        if output.ndim == 4:
            last = getattr(model, "output_fmt", "NCHW") == "NHWC"
            return output.mean(dim=(1, 2) if last else (2, 3))
        if output.ndim != 3:
            return None
        count = output.shape[1]
        first = int(getattr(model, "num_prefix_tokens", count - math.isqrt(count) ** 2))
        mean_BC = output[:, first:].mean(dim=1)
        return torch.cat([output[:, 0], mean_BC], dim=1) if first else mean_BC

    @torch.no_grad()
    def _probed(self, names: Sequence[str]) -> tuple[dict[str, Layer], Tensor]:
        """The layers that give maps or tokens of noise, in order, and the output."""
        with evaluating(self.encoder), _outputs(self.encoder, names) as outputs:
            try:
                output_BD = self.encoder(self.noise())
            except UserError:
                raise
            except Exception as error:  # of the user's own code
                said = f"the encoder cannot take images of {self.size} pixels: {reason_of(error)}"
                raise UserError(said) from error
        check_representation(output_BD, self.noise())
        found = {
            name: Layer(output.ndim, output[0].numel() // part_BC.shape[1], part_BC, size_BC)
            for name, output in outputs.items()
            if (part_BC := self._pooled(output)) is not None
            and (size_BC := self._pooled(output.abs())) is not None
        }
        return found, output_BD.float()


class ShallowDepths:
    """Encodes, and reads the depths before the encoder's last block on the way.

    Args:
        encoder: As it is when it first encodes here, layers are watched: norms that were replaced
            before, for several processes, count.

    Attributes:
        dim: F, numbers of these depths.

    Raises:
        UserError: An encoder that shows no such depth.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._depths = depths = Depths(encoder, encoder.size)
        if not depths.shallow:
            raise UserError(
                f"the encoder {encoder.config.name} shows no depth but its last, so nothing can be "
                "predicted from others: choose objective.predict_from representation"
            )
        self.dim = sum(depths.widths[: len(depths.shallow)])
        self._watched = False
        self._kept: dict[str, Tensor] | None = None  # of the pass under way

    def encode(self, images_BCHW: Tensor) -> tuple[Encoding, Tensor]:
        """What the encoder gives, and these depths, (B, F)."""
        encoder = cast(Encoder, self._depths.encoder)
        if not self._watched:
            for name in self._depths.shallow:
                encoder.get_submodule(name).register_forward_hook(partial(self._keep, name))
            self._watched = True
        kept: dict[str, Tensor] = {}
        self._kept = kept
        encoding = encoder.encode(images_BCHW)
        self._kept = None
        return encoding, torch.cat([kept[name] for name in self._depths.shallow], dim=1)

    def _keep(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._kept is not None:
            self._kept[name] = self._depths.pooled(output)


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether the numbers are; on the meta device, where there are none, whether as many are."""
    if first.shape != second.shape:
        return False
    return first.is_meta or bool((first - second).norm() <= SAME * second.norm())


@contextmanager
def _outputs(encoder: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What some layers of an encoder give while it runs in this thread, by name, in order."""
    outputs, thread = dict[str, Any](), threading.get_ident()

    def keep(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() == thread:
            outputs[name] = output

    handles = [
        encoder.get_submodule(name).register_forward_hook(partial(keep, name)) for name in names
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _candidates(encoder: nn.Module) -> Iterator[str]:
    """Names of layers through which all of an image passes, as far as the structure says so."""
    if isinstance(encoder, Encoder) and encoder.library == "timm":
        for stage in getattr(encoder.model, "feature_info", ()):
            yield f"model.{stage['module']}"
        return
    if type(getattr(encoder, "model", None)).__name__ == "SwinTransformer":
        return  # torchvision's, whose maps have their channels last
    yield from _in_a_row(encoder, "")


def _in_a_row(module: nn.Module, prefix: str) -> Iterator[str]:
    """Children, and children of those that are sequences or that hold the sequence alone."""
    for name, child in module.named_children():
        yield f"{prefix}{name}"
        if isinstance(child, nn.Sequential) or not prefix or name in ("encoder", "trunk_output"):
            yield from _in_a_row(child, f"{prefix}{name}.")


def _default_layers(found: dict[str, Layer]) -> list[str]:
    """Of maps the last layer of each size; of tokens some, evenly spaced."""
    maps = {of.places: name for name, of in found.items() if of.axes == 4 and of.places > 1}
    tokens = [name for name, of in found.items() if of.axes == 3]
    if len(tokens) > len(maps):
        ends = (len(tokens) * (at + 1) // TOKENS for at in range(TOKENS))
        return [tokens[end - 1] for end in dict.fromkeys(ends) if end]
    return list(maps.values())
