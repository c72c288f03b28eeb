"""Methods with a teacher that follows the student."""

from dataclasses import dataclass

from torch import nn

from mast.methods.base import SHARE, Method, MethodConfig, limited
from mast.models import Teacher, rising


@dataclass
class TaughtConfig(MethodConfig):
    """What such methods share.

    Attributes:
        momentum: How much of the teacher stays at a step; where it rises to one over the run,
            at the start.
    """

    limits = limited(momentum=SHARE)
    momentum: float = 0.99


class TaughtMethod(Method):
    """A method with a teacher, the moving average of the encoder and what stands behind it.

    The teacher follows after every optimizer step.

    Attributes:
        teacher: From images to what `taught` makes of their representations, without gradients.
        momentum_rises: Whether the momentum is that of the configuration at the start alone.
    """

    config: TaughtConfig
    teacher: Teacher
    momentum_rises: bool = True

    def taught(self) -> nn.Module:
        """What the teacher has behind its encoder, as the student has it; the projector."""
        return self.get_submodule("projector")

    def begin(self) -> None:
        """The teacher starts as the student."""
        self.teacher.start(self.encoder, self.taught())

    def after_step(self, progress: float) -> None:
        """The teacher follows."""
        first = self.config.momentum
        momentum = rising(first, progress) if self.momentum_rises else first
        self.teacher.follow(self.encoder, self.taught(), momentum)
