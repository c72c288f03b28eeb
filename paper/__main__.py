"""`python -m paper reproduce TABLE --data SETS --out FOLDER`, and `mast` with what is the paper's.

Every command of `mast` has the methods and protocols of the paper here. From the root of the
repository.
"""

import sys

from mast.cli import main
from mast.cli.verbs import VERBS, Program, Verb
from paper import register

PROGRAM = Program(
    "python -m paper",
    {"reproduce": Verb("reproduce:reproduce", ("table",), package="paper"), **VERBS},
    register,
)

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
