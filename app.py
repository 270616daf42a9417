"""The demo: one picture with its hires pass whole and reduced, in figures and side by side.

Run ``python3 app.py`` in a fresh clone. It makes an environment of its own (.venv-demo), runs a comparison on the
pocket model, writes the pictures, and serves a page for more of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from environment import DEMO

EXAMPLES = """examples:
  python3 app.py                                        the comparison, then the page
  python3 app.py --no-page --preset "ToDo fast"         figures and pictures of another preset
  python3 app.py --set factor_1=4 --set end=0.7         with settings of docs/settings.md
  python3 app.py --model photo-model.safetensors --prompt "a lighthouse at dusk" --width 512 --height 512

What is left out: 20 steps at 128 x 128 pixels (512 x 512 for a model of your own), then 12 at twice the side.
"""


def parser() -> argparse.ArgumentParser:
    """The options. They are read before anything is installed, so the rest of the program checks their values."""
    made = argparse.ArgumentParser(
        prog="app.py", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a model beside the pocket one: a .safetensors checkpoint of Stable Diffusion 1 or 2, or the folder of a "
        "diffusers pipeline; can be given several times, and the comparison is made on the first",
    )
    made.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the pictures (%(default)s)")
    made.add_argument("--no-page", dest="page", action="store_false", help="end after the comparison")
    made.add_argument("--port", type=int, default=None, help="of the page (the first free one from 7860)")
    made.add_argument("--here", action="store_true", help="use the python that runs this and install nothing")
    _picture(made.add_argument_group("the picture"))
    reduction = made.add_argument_group("the reduction")
    reduction.add_argument("--preset", default="ToDo balanced", help="named settings to begin with (%(default)s)")
    reduction.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting on top, any of docs/settings.md"
    )
    return made


def _picture(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--prompt", help="what to paint; the pocket model knows few words, and says which")
    group.add_argument("--negative", help="what not to paint")
    group.add_argument("--seed", type=int)
    group.add_argument("--width", type=int, help="of the first pass, in pixels")
    group.add_argument("--height", type=int)
    group.add_argument("--steps", type=int, help="of the first pass")
    group.add_argument("--guidance", type=float, help="how closely to follow the prompt")
    group.add_argument("--sampler", help="DDIM, Euler, Euler a, Heun or DPM++ 2M")
    group.add_argument("--hires-scale", type=float, help="by how much the hires pass enlarges each side")
    group.add_argument("--hires-steps", type=int)
    group.add_argument("--denoising", type=float, help="how much of the picture the hires pass makes anew, up to 1")


def main(arguments: list[str]) -> int:
    """Make the environment and go on in it, or go on where it is already."""
    options = parser().parse_args(arguments)
    if not (options.here or DEMO.is_this):
        DEMO.ensure()
        return DEMO.run(str(Path(__file__).resolve()), *arguments, cwd=Path.cwd())
    from todo_core.demo.command import run

    return run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
