"""The contract of a method: views in, loss and its terms out.

All state is parameters or buffers, so that resuming is `load_state_dict`: a frozen teacher is
parameters that require no gradient, a queue is a buffer.

Shapes: B images, C dimensions of the representation, D of the embedding, K operators, H hidden
units of a head. Progress is the share of the run that is done, from 0 to 1.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mast.augment import Preset, Views
from mast.core.errors import UserError
from mast.core.fields import check_within
from mast.core.transfer import to_device
from mast.methods.collapse import collapse_warnings
from mast.methods.parts import (
    HostInputs,
    Images,
    OperatorPrediction,
    Part,
    PredictionConfig,
    changing,
    check_properties,
)
from mast.models import MLP, Encoder, MLPConfig
from mast.models.lora import add_lora
from mast.models.torchvision_models import Encoding

ViewCount = tuple[int, float]  # the fewest and the most
TWO: ViewCount = (2, 2)
TWO_OR_MORE: ViewCount = (2, math.inf)
ENCODER = "encoder."  # how the encoder's names begin in a method's state dict
ONE_RATE: Mapping[str, float] = MappingProxyType({})
NEGATIVES = "its negatives are the other images of the batch"


@dataclass
class MethodConfig:
    """Common fields of all methods' configurations; each is defined in its method's file.

    Attributes:
        takes: How many views of an image the method takes.
        limits: Intervals of the fields of this class; those here hold for a field of that name.
        projector: Sizes of the projector.
        momentum: EMA momentum of the teacher; its starting value for methods that raise it to 1
            over the run.
        temperature: Softmax temperature: cosines are divided by it.
        queue: Size of the queue of negatives, in embeddings of earlier images.
    """

    takes: ClassVar[ViewCount] = (1, math.inf)
    limits: ClassVar[Mapping[str, str]] = {
        "momentum": "[0, 1]", "temperature": "(0, inf)", "queue": "[1, inf)",
    }  # fmt: skip

    @property
    def needs_whole_batch(self) -> str | None:
        """Why a batch cannot be computed in parts; None where it can."""
        return None

    def check(self) -> None:
        """Refuse invalid values."""
        check_within(vars(self), {**MethodConfig.limits, **self.limits}, "objective.")
        sizes = {"hidden": "[1, inf)", "dim": "[1, inf)", "weight": "[0, inf)"}
        for part in ("projector", "prediction"):
            if hasattr(self, part):
                check_within(vars(getattr(self, part)), sizes, f"objective.{part}.")

    def check_views(self, preset: Preset) -> None:  # most take what there is
        """Refuse views from which the method cannot learn, of the number that it takes."""


@dataclass
class PairConfig(MethodConfig):
    """A method of two views, which may predict what the operators did (AugSelf, NeurIPS 2021).

    Attributes:
        predicted: Image properties ("color", "position", ...: `mast show operators`) to predict:
            heads on the representation predict how the operators that change them differed
            between the views. None in the original method.
        prediction: Weight and width of these heads.
    """

    takes = TWO
    projector: MLPConfig = field(default_factory=MLPConfig)
    predicted: tuple[str, ...] = ()
    prediction: PredictionConfig = field(default_factory=PredictionConfig)

    def check(self) -> None:
        super().check()
        check_properties(self.predicted)

    def heads(self, encoder: Encoder, operators: tuple[str, ...]) -> OperatorPrediction:
        """The heads over the representation."""
        names = changing(operators, self.predicted) if self.prediction.weight else ()
        return OperatorPrediction(self.prediction, encoder.dim, names)


class Method(nn.Module, ABC):
    """A self-supervised objective over an encoder.

    A method writes `build`, `step`, and where the defaults do not fit `host_inputs`, `after_step`
    and `embed`; its configuration says which views it takes. What it holds of `mast.methods.parts`
    (teachers, prototypes, predictions) brings its own host inputs and updates.

    Data-parallel training wraps the method as a whole, so `forward` is all that a step calls.
    Every parameter that requires a gradient must get one at every step, and a buffer that changes
    must be computed from the tensors of all processes (`mast.core.collectives`): the others take
    over that of the first.

    Args:
        config: Its own configuration.
        encoder: The encoder to train.
        operators: Names of the K augmentations of its views.
        seed: Seed of the method's own draws, except the initialization of its layers.

    Attributes:
        projector: From a representation to the embedding, where there is one.
        masks: Gives the masks of the K operators, mask_DK, where there are any.
        objective: From embeddings to the loss, where it is worth compiling.
        gates: Names of the parameters that gate rather than weigh (masks, GeM powers): they
            get an optimizer group of their own.
        steady: How the names of those parameters begin whose rate stays at its peak.
        labelled: Whether it learns from labels, which are in the views then.
        unit_length: Whether embeddings have length 1.
    """

    projector: nn.Module
    masks: Any
    objective: Any
    gates: tuple[str, ...] = ()
    steady: tuple[str, ...] = ()
    labelled: bool = False
    unit_length: bool = False

    def __init__(
        self, config: Any, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder
        self.operators = operators
        self.seed = seed
        self._in_evaluation: type[nn.Module] | None = None  # modules of encoders that stay in it
        self._graphs = False
        self.build()

    # ------------------------------------------------------------------ what a method writes
    def build(self) -> None:
        """Build all parts but the encoder from `config`, `encoder`, `operators` and `seed`."""

    @abstractmethod
    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """Compute the loss of one batch on the device alone.

        It neither reads numbers from the device nor copies from the host, so a GPU never waits.

        Args:
            images: Of every view, images_BCHW in [0, 1]; views may differ in size.
            inputs: The host inputs, on the device.
            progress: Share of the run that is done.

        Returns:
            "loss" (to be minimised), "term/<name>" (its weighted addends, which sum to the
            loss) and "stat/<name>" (detached, for the log).
        """

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """Further inputs of `step` from the host, on the CPU."""
        inputs: dict[str, Tensor] = {}
        for part in self._parts():
            inputs |= part.host_inputs(views, progress)
        return inputs

    def after_step(self, progress: float) -> None:
        """Called after every optimizer step; by default parts are updated."""
        for part in self._parts():
            part.after_step(progress)

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The embeddings in which the loss works, (B, D) in float32; of a Gaussian, its mean."""
        embedding_BD: Tensor = self.projector(self.encoder(images_BCHW))
        return F.normalize(embedding_BD, dim=1) if self.unit_length else embedding_BD

    # ---------------------------------------------------------------------------- training
    def forward(self, views: Views, progress: float) -> dict[str, Tensor]:
        """As `step`, of views of this process's images."""
        device = views.images[0].device
        own = self.host_inputs(views, progress)
        inputs = {name: to_device(tensor, device) for name, tensor in own.items()}
        if not self._graphs:
            return self.step(views.images, inputs, progress)
        torch.compiler.cudagraph_mark_step_begin()
        output = self.step(views.images, inputs, progress)
        return {name: value.clone() for name, value in output.items()}  # the next replay's memory

    def frozen(self, progress: float) -> Iterable[nn.Parameter]:
        """What the next step leaves as it is: no gradient, no moments, no weight decay."""
        return [own for part in self._parts() for own in part.frozen(progress)]

    def load_encoder(self, weights: Mapping[str, Tensor]) -> None:
        """Give the encoder, and those of teachers, the weights from which a run starts."""
        for encoder in self.modules():
            if isinstance(encoder, Encoder):
                encoder.model.load_state_dict(weights)

    def _parts(self) -> Iterator[Part]:
        return (module for module in self.modules() if isinstance(module, Part))

    def parameter_groups(self, shares: Mapping[str, float] = ONE_RATE) -> list[dict[str, Any]]:
        """What is trained, in groups named "weights", "vectors" (biases, norms) and "gates".

        Args:
            shares: Rates as a share of the others', by the name of an encoder's parameter.

        Returns:
            Dicts with "name", "params", "share" and "steady", one for each combination.
        """
        groups: dict[tuple[str, float, bool], list[nn.Parameter]] = {
            (kind, 1.0, False): [] for kind in ("weights", "vectors", "gates")
        }
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            share = shares.get(name.removeprefix(ENCODER), 1.0) if name.startswith(ENCODER) else 1.0
            kind = "vectors" if parameter.ndim < 2 else "weights"
            if name.endswith(self.gates) and self.gates:
                kind = "gates"
            steady = bool(self.steady) and name.startswith(self.steady)
            groups.setdefault((kind, share, steady), []).append(parameter)
        return [
            {"name": kind, "params": params, "share": share, "steady": steady}
            for (kind, share, steady), params in groups.items()
            if params
        ]

    def freeze_encoder(self) -> None:
        """Leave the encoder as it is, the statistics of its norms included."""
        self._in_evaluation = nn.Module
        self.encoder.requires_grad_(False)
        self.train(self.training)

    def add_lora(self) -> None:
        """Add LoRA where `EncoderConfig.lora` is set; called after the weights are loaded."""
        for module in self.modules():
            if isinstance(module, Encoder) and (rank := module.config.lora) is not None:
                add_lora(module, rank, self.seed)

    def freeze_statistics(self) -> None:
        """Keep the statistics of the encoder's BatchNorm, and normalise by them."""
        if not any(isinstance(module, _BatchNorm) for module in self.encoder.modules()):
            raise UserError(
                "encoder.freeze_statistics is for encoders with BatchNorm: leave it out"
            )
        self._in_evaluation = _BatchNorm
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Frozen parts of encoders, teachers' included, stay in evaluation mode."""
        super().train(mode)
        if self._in_evaluation is not None:
            for encoder in self.modules():
                for part in encoder.modules() if isinstance(encoder, Encoder) else ():
                    if isinstance(part, self._in_evaluation):
                        part.training = False
        return self

    def compile_parts(self, graphs: bool = False) -> None:
        """Compile with `torch.compile` what gains by it: encoder, projector, `objective`, heads.

        The encoder is compiled for training only, as evaluation has other batch sizes, and each
        would recompile it. An objective becomes a few passes, including its collectives. Earlier
        compilations are discarded, as PyTorch would reuse them despite other hooks.

        Args:
            graphs: Replay each part as CUDA graphs (mode "reduce-overhead"), for small steps.
        """
        torch.compiler.reset()
        self._graphs = graphs
        mode = "reduce-overhead" if graphs else None
        plain, compiled = self.encoder.encode, torch.compile(self.encoder.encode, mode=mode)

        def encode(images_BCHW: Tensor) -> Encoding:
            return (compiled if self.encoder.training else plain)(images_BCHW)

        self.encoder.encode = encode  # type: ignore[method-assign]
        if hasattr(self, "projector"):
            self.projector.compile(mode=mode)
        if hasattr(self, "objective"):
            self.objective = torch.compile(self.objective, mode=mode)
        for module in self.modules():
            if isinstance(module, OperatorPrediction) and module.heads:
                module.compile(mode=mode)

    # ----------------------------------------------------------------------------- the log
    def statistics(self) -> dict[str, float]:
        """Figures of the parameters for the log, taken when it is written."""
        return {}

    def warnings(self, metrics: Mapping[str, float]) -> Iterator[str]:
        """Name the collapses that the logged metrics show, each with its cause and a remedy.

        Args:
            metrics: What was logged of a step, and "progress", the share of the run that is done.
        """
        yield from collapse_warnings(metrics)
        for name in getattr(self.config, "predicted", None) or ():
            if not changing(self.operators, (name,)):
                yield f"{name} is not predicted: no operator of the views changes it"

    # --------------------------------------------------------------------- what it learned
    @property
    def final_encoder(self) -> Encoder:
        """What is measured during training and saved after it: the encoder, or its teacher's."""
        return self.encoder

    def subspaces(self) -> Tensor | None:
        """The masks of the K operators as the distance uses them, mask_DK; None without masks."""
        return self.masks() if hasattr(self, "masks") else None


class PairMethod(Method):
    """A method with a `PairConfig`: encoder, projector, heads that predict what was done.

    Attributes:
        shape: Further arguments of `MLP` for the projector.
    """

    shape: ClassVar[Mapping[str, Any]] = {}

    def build(self) -> None:
        self.prediction = self.config.heads(self.encoder, self.operators)
        self.projector = MLP(self.encoder.dim, self.config.projector, **self.shape)


def output_of(terms: Mapping[str, Tensor], **statistics: Tensor) -> dict[str, Tensor]:
    """What `Method.step` returns.

    Args:
        terms: Weighted addends of the loss, by name.
        **statistics: For the log, by name.
    """
    first, *others = terms.values()
    return {
        "loss": sum(others, first),
        **{f"term/{name}": value.detach() for name, value in terms.items()},
        **{f"stat/{name}": value.detach() for name, value in statistics.items()},
    }


def spread(embedding_BD: Tensor) -> Tensor:
    """Standard deviation of unit vectors, where 1 is that of random ones and 0 a collapse.

    Args:
        embedding_BD: Embeddings of any length.

    Reference:
        SimSiam, section 4.1: the deviation per dimension is 1 / sqrt(D) without a collapse.
    """
    unit_BD = F.normalize(embedding_BD.detach(), dim=1)
    return unit_BD.std(dim=0).mean() * unit_BD.shape[1] ** 0.5
