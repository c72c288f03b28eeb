"""`python -m paper COMMAND`, from a clone: `mast` with the paper's additions."""

import sys

from mast.cli import main
from mast.cli.verbs import VERBS, Program, Verb
from paper import register

PROGRAM = Program(
    "python -m paper",
    {
        "reproduce": Verb("reproduce:reproduce", ("table",), package="paper"),
        **VERBS,
        "advise": Verb("advise:advise", ("encoder",), package="paper"),
        "analyze": Verb("analyze:analyze", ("run",), package="paper"),
        "report": Verb("report:report", ("run",), package="paper"),
        "study": Verb("study:study", ("name", "run"), package="paper"),
    },
    register,
)

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
