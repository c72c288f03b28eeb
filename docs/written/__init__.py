"""What the documents say of results, a module for each group of studies."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # of `experiments`
