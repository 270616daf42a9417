"""The demo: one picture as baseline, with ToDo, and with as many plain steps as take the same time.

Run ``python3 app.py`` in a fresh clone. It makes an environment of its own (.venv-demo), compares three hires
passes of the pocket model, writes the pictures, and serves a page for more comparisons.
"""

import argparse
import os
import sys

from todo_lab.command_line import USAGE_ERROR, run_module  # todo_lab refuses Pythons that can read only this file
from todo_lab.demo.checks import why_not
from todo_lab.demo.options import DEFAULTS, add_arguments
from todo_lab.environment import DEMO, INTERRUPTED, end_in_order

EXAMPLES = """examples:
  python3 app.py                                        the comparison, then the page
  python3 app.py --no-page --preset Fast                another preset, without the page
  python3 app.py --set factor_1=4 --set end=0.7         settings of docs/settings.md
  python3 app.py --model photo-model.safetensors --prompt "a lighthouse at dusk"

"""


def parser():
    """The options."""
    made = argparse.ArgumentParser(
        prog="app.py",
        description=__doc__,
        epilog=EXAMPLES + DEFAULTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--no-page", dest="page", action="store_false", help="end after the comparison")
    made.add_argument("--port", type=int, default=None, help="of the page (default: the first free one from 7860)")
    made.add_argument("--here", action="store_true", help="use this Python and install nothing")
    add_arguments(made)
    return made


def main(arguments):
    """Make the environment and run the demo in it; returns the exit status."""
    options = parser().parse_args(arguments)
    end_in_order()
    if not (options.here or DEMO.is_this):
        refused = why_not(options)  # before anything is installed
        if refused:
            sys.stderr.write(refused + "\n")
            return USAGE_ERROR
        try:
            DEMO.ensure()
            DEMO.enter(os.path.realpath(__file__), "--here", *arguments)
        except KeyboardInterrupt:
            sys.stdout.write("Stopped.\n")
            return INTERRUPTED
    sys.stdout.write("Starting Python's libraries.\n")
    sys.stdout.flush()
    return run_module("todo_lab.demo.command", "demo", lambda module: options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
