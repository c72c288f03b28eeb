"""Methods: what turns the views of images into a loss. One file each, one row here."""

from typing import NamedTuple

from mast.core.errors import UserError
from mast.methods.base import ENCODER, Method, MethodConfig, Subspaces, Vital
from mast.methods.mast import Mast
from mast.methods.mast_config import MODES, MastConfig
from mast.methods.needs import StepNeeds, step_needs
from mast.methods.representations import (
    Embedding,
    EncoderAndEmbedding,
    MaskedEnsemble,
    MatchBy,
    PredictedUncertainty,
    predicts_uncertainty,
    save_embedding,
)
from mast.methods.vicreg import VICReg, VICRegConfig


class Entry(NamedTuple):
    """A row of the registry: the name that its paper prints, its configuration and its class."""

    title: str
    config: type[MethodConfig]
    method: type[Method]


METHODS: dict[str, Entry] = {
    "mast": Entry("MAST", MastConfig, Mast),
    "vicreg": Entry("VICReg", VICRegConfig, VICReg),
}


def method_of(config: MethodConfig) -> str:
    """The method that a configuration is of, a key of `METHODS`.

    Raises:
        UserError: It is no method's.
    """
    for name, entry in METHODS.items():
        if type(config) is entry.config:
            return name
    kinds = ", ".join(entry.config.__name__ for entry in METHODS.values())
    raise UserError(f"expected the configuration of a method ({kinds}), got {config!r}")


__all__ = [
    "ENCODER",
    "METHODS",
    "MODES",
    "Embedding",
    "EncoderAndEmbedding",
    "Entry",
    "MaskedEnsemble",
    "Mast",
    "MastConfig",
    "MatchBy",
    "Method",
    "MethodConfig",
    "PredictedUncertainty",
    "StepNeeds",
    "Subspaces",
    "VICReg",
    "VICRegConfig",
    "Vital",
    "method_of",
    "predicts_uncertainty",
    "save_embedding",
    "step_needs",
]
