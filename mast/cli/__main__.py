"""`python -m mast.cli`, as torchrun starts it."""

import sys

from mast.cli import main

sys.exit(main())
