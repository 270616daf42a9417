"""Run every check in a virtual environment of its own: python3 tests/run.py [pytest arguments].

Works in a fresh clone with nothing but Python 3.10 to 3.12; later runs reuse the environment (.venv-test).
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-test"
PYTHON = HOME / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
REQUIREMENTS = ROOT / "tests" / "requirements.txt"
NO_DEPS = ROOT / "tests" / "requirements-no-deps.txt"


def run(*args: str) -> None:
    """Run a module in the environment; stop at the first that fails."""
    print("$ python -m", *args, flush=True)
    done = subprocess.run([PYTHON, "-m", *args], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def install() -> None:
    """Make the environment, unless it already has these requirements."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + NO_DEPS.read_bytes()).hexdigest()
    stamp = HOME / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    venv.create(HOME, clear=True, with_pip=True)
    pip = ("pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "torch==2.13.0")
    run(*pip, "-r", str(REQUIREMENTS))
    run(*pip, "--no-deps", "-r", str(NO_DEPS))
    run(*pip, "--no-deps", "-e", str(ROOT))
    stamp.write_text(wanted)


if __name__ == "__main__":
    install()
    run("ruff", "check", ".")
    run("ruff", "format", "--check", ".")
    run("mypy")
    run("pytest", *sys.argv[1:])
