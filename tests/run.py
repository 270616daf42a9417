"""Run every check in virtual environments of their own: python3 tests/run.py [pytest arguments].

Works in a fresh clone with nothing but Python 3.10 to 3.12; later runs reuse the environments (.venv-test, and
.venv-demo for the demo's gradio, which is another than the WebUI's). Arguments for pytest go to the first run alone.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from todo_lab.environment import DEMO, TESTS  # noqa: E402

if __name__ == "__main__":
    TESTS.ensure()
    TESTS.check("ruff", "check", ".")
    TESTS.check("ruff", "format", "--check", ".")
    TESTS.check("mypy")
    TESTS.check("pytest", *sys.argv[1:])
    if len(sys.argv) == 1:
        DEMO.ensure()
        DEMO.also(("pytest>=8",))
        DEMO.check("pytest", "tests/demo")
