"""Experiments behind the documents: runs of recipes, measured, with a result file each.

    python -m experiments NAME --data SETS --out FOLDER [--seeds 0 1 2]

SETS is a folder of the sets that the experiment's class names. Run again, it goes on where it was
killed; what is in experiments/results was copied from a FOLDER. Start it in the repository.
"""

import argparse
from pathlib import Path

from experiments.advice_check import AdviceCheck
from experiments.beyond import Beyond
from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.detectors import Detectors
from experiments.does_it_help import DoesItHelp
from experiments.elsewhere import ELSEWHERE
from experiments.fair import FAIR
from experiments.findings import Findings
from experiments.flowers import Flowers
from experiments.forgetting import Forgetting
from experiments.forms import FORMS
from experiments.forms import register as register_forms
from experiments.lightly import Lightly
from experiments.objectives import register
from experiments.protocols import Protocols
from experiments.small import Small
from experiments.starts import Starts
from experiments.uncertainty_check import UncertaintyCheck
from mast.core.display import terminal
from mast.core.errors import UserError
from paper.experiment import Experiment, perform
from paper.reproduce import fitted, reproduced, seeds_of, workplace_of
from paper.studies.engine import RunShard, failures, table
from paper.tables import TableExperiment
from paper.tables.flops import GPUS

EXPERIMENTS: dict[str, Experiment] = {
    "does_it_help": DoesItHelp(),  # MAST-C over VICReg's distance beside VICReg at equal budgets
    "forgetting": Forgetting(),  # do exempt blocks keep what operators destroy?
    "small": Small(),  # most methods at one small budget
    "beyond": Beyond(),  # does pretraining help beyond weights that can be downloaded?
    "candidates": CANDIDATES_ON_VALIDATION,  # which objective is worth testing?
    "fair": FAIR,  # methods that predict, with the same properties, trials and eight seeds
    "forms": FORMS,  # is the paper's method ahead of VICReg in any form?
    **ELSEWHERE,  # does the lead of `fair` last under other conditions?
    "lightly": Lightly(),  # rows of lightly's CIFAR-10 benchmark
    "flowers": Flowers(),  # Flowers-17 beside the untrained encoder
    "starts": Starts(),  # what is a start from weights worth?
    "protocols": Protocols(),  # do the probes agree?
    "detectors": Detectors(),  # do the detectors learn?
    "advice_check": AdviceCheck(),  # is the advice right where the truth is known?
    "uncertainty_check": UncertaintyCheck(),  # does the uncertainty find damaged copies?
    "findings": Findings(),  # what the analyses and studies of small runs say
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", default=[], help="patterns of names of runs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th run, from the i-th")
    parser.add_argument("--dry", action="store_true", help="only say what would be run")
    parser.add_argument("--gpu", choices=GPUS, help="of which --dry says the hours of a table")
    options = parser.parse_args(arguments)
    if options.name in ("candidates", "fair"):
        register()
    register_forms()
    try:
        carry_out(EXPERIMENTS[options.name], options)
    except UserError as error:
        raise SystemExit(f"error: {error}") from error


def carry_out(experiment: Experiment, options: argparse.Namespace) -> None:
    """Train and measure what is left, and print what is known."""
    seeds, part = seeds_of(options.seeds), RunShard.parse(options.shard)
    if not experiment.seeded and seeds != [0]:
        raise UserError(f"{options.name} has runs of seed 0: leave seeds out")
    place = workplace_of(options.name, options.data, options.out, options.device, options.threads)
    if isinstance(experiment, TableExperiment):
        done = reproduced(experiment, place, seeds, options.only, part, options.dry, options.gpu)
        print(done)
        runs = done.runs
    else:
        runs, measured = perform(experiment, place, seeds, options.only, part, options.dry)
        out = terminal()
        out.print(table(options.name, runs))
        if measured:
            out.print(fitted(experiment.table(measured)))
    if failed := failures(runs):
        raise SystemExit("\n".join((*failed, "the same command tries again")))


if __name__ == "__main__":
    main()
