"""Methods of two views with a teacher that follows the student."""

from dataclasses import dataclass
from typing import Any

from mast.methods.base import check_shares
from mast.methods.pair import PairConfig, PairMethod
from mast.models import MLP, Encoder, Teacher, rising


@dataclass
class TaughtConfig(PairConfig):
    """What such methods share.

    Attributes:
        momentum: How much of the teacher stays at a step; where it rises over the run, to one, at
            the start.
    """

    momentum: float = 0.99

    def check(self) -> None:
        """See `MethodConfig.check`."""
        super().check()
        check_shares(self, "momentum")


class TaughtMethod(PairMethod):
    """A method of two views with a teacher, the moving average of encoder and projector.

    The teacher follows after every optimizer step.

    Args:
        config: Of the method.
        encoder: The encoder to train.
        projector: From its representation to the embedding.
        operators: Names of the augmentations.
        seed: See `Method`.

    Attributes:
        teacher: From images to embeddings, without gradients.
    """

    config: TaughtConfig

    def __init__(
        self,
        config: Any,
        encoder: Encoder,
        projector: MLP,
        operators: tuple[str, ...],
        seed: int = 0,
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = projector
        self.teacher = Teacher(encoder, projector)

    def begin(self) -> None:
        """The teacher starts as the student."""
        self.teacher.start(self.encoder, self.projector)

    def momentum(self, progress: float) -> float:
        """The teacher's, which rises from that of the configuration to one."""
        return rising(self.config.momentum, progress)

    def after_step(self, progress: float) -> None:
        """The teacher follows."""
        self.teacher.follow(self.encoder, self.projector, self.momentum(progress))
