"""The demo: one picture with its hires pass whole and reduced, in figures and side by side.

Run ``python3 app.py`` in a fresh clone. It makes an environment of its own (.venv-demo), runs a comparison on the
pocket model, writes the pictures, and serves a page for more of them.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from todo_lab.environment import DEMO, ROOT

EXAMPLES = """examples:
  python3 app.py                                        the comparison, then the page
  python3 app.py --no-page --preset "ToDo fast"         figures and pictures of another preset
  python3 app.py --set factor_1=4 --set end=0.7         with settings of docs/settings.md
  python3 app.py --model photo-model.safetensors --prompt "a lighthouse at dusk" --width 512 --height 512

"""


def parser() -> argparse.ArgumentParser:
    """The options. They are read before anything is installed, so the rest of the program checks their values."""
    # the file alone: its package needs torch
    options = runpy.run_path(str(ROOT / "todo_core" / "demo" / "options.py"))
    made = argparse.ArgumentParser(
        prog="app.py",
        description=__doc__,
        epilog=EXAMPLES + options["LEFT_OUT"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--no-page", dest="page", action="store_false", help="end after the comparison")
    made.add_argument("--port", type=int, default=None, help="of the page (the first free one from 7860)")
    made.add_argument("--here", action="store_true", help="use the python that runs this and install nothing")
    options["add"](made)
    return made


def main(arguments: list[str]) -> int:
    """Make the environment and go on in it, or go on where it is already."""
    options = parser().parse_args(arguments)
    if not (options.here or DEMO.is_this):
        DEMO.ensure()
        return DEMO.run(str(Path(__file__).resolve()), *arguments, cwd=Path.cwd())
    from todo_lab.demo.command import run

    return run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
