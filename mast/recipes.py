"""Recipes: complete configurations, one function each; the docstring is its data sheet.

A recipe named `<name>_small` is the same method for views of up to 64 pixels and a budget of
minutes to hours on a laptop. `RECIPES` lists them all; `mast show recipes` prints them.
"""

import difflib
import json
import re
from argparse import ArgumentError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from mast.augment import ScheduleConfig
from mast.core.errors import UserError, unknown
from mast.core.optim import OptimizerConfig
from mast.methods import METHODS, MastConfig, VICRegConfig
from mast.models import EncoderConfig, ProjectorConfig
from mast.pretrain import PretrainConfig

# ------------------------------------------------------------------------------ ImageNet scale


def mast5() -> PretrainConfig:
    """MAST-5 on ImageNet: ResNet-50, 1000 epochs, batch 2048.

    Paper: linear top-1 74.9, 1 %/10 % semi-supervised 55.2/70.2 (Table 1).
    Hyper-parameters of section 3.2 and of VICReg, whose protocol it follows: LARS, rate 1.6 at
    batch 2048, weight decay 1e-6, cosine after 10 epochs of warm-up, projector 8192-8192, d 4096.
    The objective is the guarded one with the paper's uncertainty and schedule;
    `--objective.mode paper` is Eq. 7 as printed.

    Cost, estimated and not measured: 6.3e19 FLOP for the encoder (4.1 GMAC forward, three times
    that with the backward, two views, 1.28 million images, 1000 epochs) and nearly as much for
    the projector, whose layers work at 49 locations: some 150 GPU hours at 30 % of an H200's
    790 TFLOP/s in bf16, half of that with `--objective.projector.pool before`.

        mast pretrain --data imagenet/train --recipe mast5
    """
    return PretrainConfig(
        recipe="mast5",
        size=224,
        views="mast5",
        method="mast",
        objective=MastConfig(uncertainty=True, projector=ProjectorConfig(hidden=8192, dim=4096)),
        encoder=EncoderConfig("resnet50"),
        optimizer=OptimizerConfig("lars", lr=0.2, weight_decay=1e-6, warmup=10),
        epochs=1000,
        batch_size=2048,
    )


def mast15() -> PretrainConfig:
    """MAST-15 on ImageNet: as mast5, with 15 operators.

    Paper: linear top-1 75.8, semi-supervised 55.8/71.4 (Table 1). Cost as mast5, and the
    augmentation's.
    """
    return replace(mast5(), recipe="mast15", views="mast15")


def mast19() -> PretrainConfig:
    """MAST-19 on ImageNet: as mast5, with 19 operators.

    Paper: linear top-1 75.8 (Table 5, row 3).
    """
    return replace(mast5(), recipe="mast19", views="mast19")


def mast5_handcrafted() -> PretrainConfig:
    """MAST-5 with fixed disjoint masks instead of learned ones.

    Disjoint masks have no intersection, so the distances of the subspaces are added (Eq. 4).
    Paper: linear top-1 74.3 (Table 5, row 7).
    """
    return _with_objective(mast5(), "mast5_handcrafted", masks="handcrafted", composition="sum")


def mast5_no_uncertainty() -> PretrainConfig:
    """MAST-5 without the predicted covariance and its KL term.

    Paper: linear top-1 74.1 (Table 5, row 8).
    """
    return _with_objective(mast5(), "mast5_no_uncertainty", uncertainty=False)


def mast5_uncertainty_only() -> PretrainConfig:
    """MAST-5 without masks: one distance, divided by the predicted covariance.

    Paper: Flowers-17 26.5, Cars 16.4 with ResNet-18 and 100 epochs (Table 6).
    """
    return _with_objective(mast5(), "mast5_uncertainty_only", masks="none")


def vicreg5() -> PretrainConfig:
    """VICReg with the five symmetric operators of MAST-5, all from the start.

    Paper: linear top-1 73.2 (Table 5, row 4). Cost, estimated as for mast5: some 75 GPU hours,
    as its expander works on pooled features.
    """
    return replace(
        mast5(),
        recipe="vicreg5",
        schedule=ScheduleConfig(staged=False),
        method="vicreg",
        objective=VICRegConfig(projector=ProjectorConfig(hidden=8192, dim=8192)),
    )


def vicreg5_staged() -> PretrainConfig:
    """VICReg with the five operators in MAST's two stages.

    Paper: linear top-1 73.4 (Table 5, row 6).
    """
    return replace(vicreg5(), recipe="vicreg5_staged", schedule=ScheduleConfig(staged=True))


def vicreg15() -> PretrainConfig:
    """VICReg with 15 operators, all from the start: richer augmentation without subspaces.

    Paper: linear top-1 73.1 (Table 5, row 2).
    """
    return replace(vicreg5(), recipe="vicreg15", views="mast15")


def vicreg() -> PretrainConfig:
    """VICReg with its official, asymmetric augmentation (blur 1.0/0.1, solarize 0/0.2).

    Never beside `vicreg5` in one comparison: the views differ. VICReg paper: linear top-1 73.2.
    """
    return replace(vicreg5(), recipe="vicreg", views="vicreg")


# --------------------------------------------------------------------------------- small scale


def _small(config: PretrainConfig) -> PretrainConfig:
    """The small variant: ResNet-18 at 64 pixels, projector 1024-1024, d 512, AdamW, 100 epochs.

    Each method is the combination that did best at small budgets (docs/results.md). MAST: all
    operators act from the start, one is left out of half of the pairs, and masks do without the
    uncertainty and the projector without GeM. VICReg with all operators: a weight of 10.
    """
    projector = ProjectorConfig(hidden=1024, dim=512, pool="average")
    objective, schedule = replace(config.objective, projector=projector), config.schedule
    if isinstance(objective, MastConfig):
        # None: as the mode says, so that `--objective.mode paper` is still Eq. 7.
        objective = replace(objective, uncertainty=True if objective.masks == "none" else None)
        schedule = ScheduleConfig(staged=False, leave_out=0.5)
    elif isinstance(objective, VICRegConfig) and not schedule.staged:
        objective = replace(objective, invariance_weight=10.0)
    return replace(
        config,
        recipe=f"{config.recipe}_small",
        size=64,
        schedule=schedule,
        objective=objective,
        encoder=EncoderConfig("resnet18"),
        optimizer=OptimizerConfig("adamw", lr=5e-3, weight_decay=1e-4, gate_lr=3e-4, warmup=10),
        epochs=100,
        batch_size=64,
    )


def _with_objective(config: PretrainConfig, name: str, **changes: Any) -> PretrainConfig:
    return replace(config, recipe=name, objective=replace(config.objective, **changes))


Recipe = Callable[[], PretrainConfig]

FULL: dict[str, Recipe] = {
    "mast5": mast5,
    "mast15": mast15,
    "mast19": mast19,
    "mast5_handcrafted": mast5_handcrafted,
    "mast5_no_uncertainty": mast5_no_uncertainty,
    "mast5_uncertainty_only": mast5_uncertainty_only,
    "vicreg5": vicreg5,
    "vicreg5_staged": vicreg5_staged,
    "vicreg15": vicreg15,
    "vicreg": vicreg,
}


def recipe(name: str) -> PretrainConfig:
    """The configuration of a recipe.

    Args:
        name: A key of `RECIPES`.

    Raises:
        UserError: No such recipe; the message has the nearest one.
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]()


def _small_recipe(full: Recipe) -> Recipe:
    return lambda: _small(full())


# No small recipe with masks has the uncertainty, so one is not named for its absence.
RECIPES: dict[str, Recipe] = FULL | {
    f"{name}_small": _small_recipe(full)
    for name, full in FULL.items()
    if full is not mast5_no_uncertainty
}


# ------------------------------------------------------------------------------- configuration


def configure(
    recipe_name: str = "mast5_small", data: str | None = None, **changes: Any
) -> PretrainConfig:
    """A recipe with changes, checked like the options of `mast pretrain`.

    Args:
        recipe_name: A key of `RECIPES`.
        data: The images, as in `DataConfig.spec`.
        **changes: Fields of `PretrainConfig`; nested ones as dicts, for example
            `encoder={"name": "resnet34"}, epochs=20`.

    Returns:
        A configuration for `mast.pretrain`.

    Raises:
        UserError: An unknown field or a value of the wrong type.
    """
    if data is not None:
        changes = {**changes, "data": {**changes.get("data", {}), "spec": data}}
    return _parse(recipe(recipe_name), lambda parser: parser.parse_object(changes))


def configure_from_arguments(arguments: Sequence[str]) -> PretrainConfig:
    """The configuration that command-line options describe.

    Defaults come from `--recipe`, then from a YAML file `--config`, then from the options.
    `--data X` is short for `--data.spec X`; `--operators` takes names with spaces between them.

    Raises:
        UserError: An unknown option or a value of the wrong type, with the nearest valid one.
    """
    rest = list(arguments)
    name, file = _take(rest, "--recipe"), _take(rest, "--config")
    rest = as_list(rest, "--operators")
    rest = [re.sub(r"^--data(?==|$)", "--data.spec", argument) for argument in rest]
    base = recipe(name or "mast5_small")
    if file is not None:
        base = read_config(Path(file), base if name else None)
    return _parse(base, lambda parser: parser.parse_args(rest))


def read_config(path: Path, base: PretrainConfig | None = None) -> PretrainConfig:
    """Read a configuration from YAML, such as a run's config.yaml.

    Args:
        path: The file; fields that it lacks are those of `base`.
        base: Defaults; the recipe that the file names, or plain defaults, if None.

    Raises:
        UserError: No such file, or one with unknown fields.
    """
    if not path.is_file():
        raise UserError(f"no configuration file {path}")
    try:
        values = yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if base is None:
        base = RECIPES.get(values.get("recipe", ""), PretrainConfig)()
        method = values.get("method", base.method)
        if method in METHODS and method != base.method:
            base = replace(base, method=method, objective=METHODS[method].config())
    return _parse(base, lambda parser: parser.parse_object(values))


def changed(config: PretrainConfig, changes: Mapping[str, Any]) -> PretrainConfig:
    """A configuration with other values, checked like the options of `mast pretrain`.

    Args:
        config: All other values.
        changes: By the field's dotted name.

    Raises:
        UserError: An unknown field or a value of the wrong type.
    """
    return _parse(config, lambda parser: parser.parse_object(dict(changes)))


def configuration_parser(base: PretrainConfig) -> ArgumentParser:
    """The parser of `mast pretrain`: every field of the configuration, with a recipe's defaults."""
    parser = ArgumentParser(prog="mast pretrain", exit_on_error=False, allow_abbrev=False)
    parser.add_class_arguments(PretrainConfig, skip={"objective"})
    parser.add_class_arguments(METHODS[base.method].config, "objective")
    parser.set_defaults(_leaves(base))
    return parser


def _parse(base: PretrainConfig, parse: Callable[[ArgumentParser], Any]) -> PretrainConfig:
    parser = configuration_parser(base)
    try:
        values = parser.instantiate(parse(parser))
    except ArgumentError as error:
        raise explain(error, parser) from error
    config = PretrainConfig(**dict(values))
    config.check()
    return config


def explain(error: ArgumentError, parser: ArgumentParser) -> UserError:
    """An argument error as one sentence, with the nearest valid option or choice."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    given = re.findall(r"--[\w.]+|Option '([\w.]+)'", text)
    wrong = re.search(r"(?:unrecognized arguments: |Option ')(?:--)?([\w.\-]+)", text)
    options = [
        option.removeprefix("--")
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    ]
    if wrong:
        close = difflib.get_close_matches(wrong[1].replace("-", "_"), options, n=1, cutoff=0.4)
        hint = f" Did you mean --{close[0]}?" if close else ""
        return UserError(f"unknown option --{wrong[1]}.{hint} See `{parser.prog} --help`.")
    choice = re.search(r"Literal\[(.*?)\].*Got value: (\S+)", text)
    if choice:
        names = re.findall(r"'([^']+)'", choice[1])
        key = re.search(r'key "([\w.]+)"', text)
        return unknown(f"value of --{key[1] if key else given[0]}", choice[2], names)
    return UserError(text)


def as_list(words: list[str], option: str) -> list[str]:
    """`--option a b` as the JSON list that the parser takes."""
    if option not in words:
        return words
    start = words.index(option) + 1
    stop = next((at for at in range(start, len(words)) if words[at].startswith("-")), len(words))
    values = words[start:stop]
    if len(values) == 1 and values[0].startswith("["):
        return words
    return [*words[:start], json.dumps(values), *words[stop:]]


def _take(arguments: list[str], option: str) -> str | None:
    """Remove `--option value` or `--option=value` from a list and return the value."""
    for position, argument in enumerate(arguments):
        if argument == option:
            if position + 1 == len(arguments):
                raise UserError(f"{option} needs a value")
            value = arguments[position + 1]
            del arguments[position : position + 2]
            return value
        if argument.startswith(option + "="):
            del arguments[position]
            return argument.partition("=")[2]
    return None


def _leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested dataclasses by dotted name; dicts are values."""
    leaves: dict[str, Any] = {}
    for name in (field.name for field in fields(config)):
        value = getattr(config, name)
        if is_dataclass(value):
            leaves |= _leaves(value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value
    return leaves
