"""`python -m paper reproduce TABLE --data SETS --out FOLDER`, and `evaluate` by its protocols.

From the root of the repository.
"""

import sys

from mast.cli import main
from mast.cli.verbs import Program, Verb

VERBS = {
    "reproduce": Verb("reproduce:reproduce", ("table",), package="paper"),
    "evaluate": Verb("evaluate:evaluate", ("encoder",), package="paper"),
}
PROGRAM = Program("python -m paper", VERBS)

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
