"""Methods: what turns pairs of views into a loss."""

from typing import NamedTuple

from mast.core.errors import UserError
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


def method_of(config: MethodConfig) -> str:
    """Name of the method with this kind of configuration.

    Raises:
        UserError: There is none.
    """
    for name, entry in METHODS.items():
        if type(config) is entry.config:
            return name
    raise UserError(f"no method has a configuration of {type(config).__name__}")


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
    "method_of",
]
