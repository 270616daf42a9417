"""Run every check: python3 tests/run.py [--all or --quick] [pytest arguments]. ``tests/checks.py`` has the details."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import todo_lab  # noqa: E402, F401  # first: it refuses older Pythons, which cannot read the files below
from tests.checks import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
