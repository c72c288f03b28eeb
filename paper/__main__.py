"""`python -m paper COMMAND`, from the root of the repository: what only the paper needs."""

import sys

from mast.cli import main
from mast.cli.verbs import Program, Verb

REPORT = "python -m paper report {run}"
VERBS = {
    "reproduce": Verb("reproduce:reproduce", ("table",), package="paper"),
    "evaluate": Verb("evaluate:evaluate", ("encoder",), package="paper"),
    "analyze": Verb("analyze:analyze", ("run",), then=REPORT, package="paper"),
    "report": Verb("analyze:report", ("run",), package="paper"),
    "study": Verb("study:study", ("name", "run"), then=REPORT, package="paper"),
}
PROGRAM = Program("python -m paper", VERBS)

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
