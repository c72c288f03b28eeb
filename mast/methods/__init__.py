"""Methods: what turns pairs of views into a loss."""

from typing import NamedTuple

from mast.methods.base import Method
from mast.methods.mast import Mast, MastConfig
from mast.methods.representations import Embedding, MaskedEnsemble, PredictedUncertainty
from mast.methods.vicreg import VICReg, VICRegConfig

MethodConfig = MastConfig | VICRegConfig


class Entry(NamedTuple):
    """A row of the registry: the configuration's class and the method's."""

    config: type[MastConfig] | type[VICRegConfig]
    method: type[Mast] | type[VICReg]


METHODS: dict[str, Entry] = {
    "mast": Entry(MastConfig, Mast),
    "vicreg": Entry(VICRegConfig, VICReg),
}

__all__ = [
    "METHODS",
    "Embedding",
    "MaskedEnsemble",
    "Mast",
    "MastConfig",
    "Method",
    "MethodConfig",
    "PredictedUncertainty",
    "VICReg",
    "VICRegConfig",
]
