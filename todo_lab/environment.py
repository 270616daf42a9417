"""A virtual environment for the demo or the tests, made with nothing but Python's own library."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 10)
TORCH = ("torch==2.13.0",)
CPU_TORCH = "https://download.pytorch.org/whl/cpu"


def cpu_index() -> tuple[str, ...]:
    """An index for pip with a torch without CUDA, for a Linux machine that has no NVIDIA driver.

    PyPI's brings gigabytes of CUDA libraries there; pip prefers this one where both are offered. Where the index
    cannot be reached, PyPI's has to do.
    """
    if platform.system() != "Linux" or shutil.which("nvidia-smi"):
        return ()
    try:
        with urlopen(f"{CPU_TORCH}/torch/", timeout=5):
            return ("--extra-index-url", CPU_TORCH)
    except OSError:
        return ()


def requirements(path: str, *, deps: bool = True) -> tuple[str, ...]:
    """What pip needs to be told for a file of requirements, given from the root."""
    return (*(() if deps else ("--no-deps",)), "-r", str(ROOT / path))


class Environment:
    """A folder below the root, made anew whenever its installs (arguments of ``pip install``) have changed."""

    def __init__(self, folder: str, *installs: tuple[str, ...]) -> None:
        self.home = ROOT / folder
        self.python = self.home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._installs = installs

    @property
    def is_this(self) -> bool:
        """Whether the running python is this environment's."""
        return Path(sys.prefix).resolve() == self.home

    def ensure(self) -> None:
        """Make it, unless it is there. One that was broken off is made again, for the stamp comes last."""
        if sys.version_info < OLDEST:
            sys.exit(f"Python {OLDEST[0]}.{OLDEST[1]} or later is needed; this is {platform.python_version()}.")
        stamp, wanted = self.home / "requirements.sha256", self._fingerprint(self._installs)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        try:
            venv.create(self.home, clear=True, with_pip=True)
        except subprocess.CalledProcessError:
            sys.exit("Python could not make a virtual environment. On Debian and Ubuntu: sudo apt install python3-venv")
        for install in self._installs:
            self._pip((*install, *cpu_index()) if install == TORCH else install)
        stamp.write_text(wanted)

    def also(self, install: tuple[str, ...]) -> None:
        """One more install on top, once."""
        wanted = self._fingerprint((install,))
        stamp = self.home / f"also-{wanted[:12]}.sha256"
        if not stamp.exists():
            self._pip(install)
            stamp.write_text(wanted)

    def run(self, *args: str, cwd: Path = ROOT) -> int:
        """Run its python; the exit status. Ctrl+C is the child's to answer."""
        child = subprocess.Popen([str(self.python), *args], cwd=cwd)
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue

    def check(self, module: str, *args: str) -> None:
        """Say which module is run, run it, and leave with its status if it fails."""
        sys.stdout.write(" ".join(("$ python -m", module, *args)) + "\n")
        sys.stdout.flush()
        if status := self.run("-m", module, *args):
            sys.exit(status)

    def _pip(self, install: tuple[str, ...]) -> None:
        self.check("pip", "install", "--quiet", "--disable-pip-version-check", *install)

    @staticmethod
    def _fingerprint(installs: tuple[tuple[str, ...], ...]) -> str:
        """Of the arguments and of what the files named in them say; the root may move."""
        words = [word for install in installs for word in install]
        texts = [Path(word).read_text("utf-8") if Path(word).is_file() else word for word in words]
        return hashlib.sha256("\n".join([platform.python_version(), *texts]).encode()).hexdigest()


PYTEST = requirements("tests/requirements-pytest.txt")
DEMO = Environment(
    ".venv-demo",
    TORCH,
    requirements("todo_lab/demo/requirements.txt"),
    requirements("todo_lab/demo/requirements-no-deps.txt", deps=False),
)
TESTS = Environment(
    ".venv-test",
    TORCH,
    requirements("tests/requirements.txt"),
    PYTEST,
    requirements("tests/requirements-no-deps.txt", deps=False),
    ("--no-deps", "-e", str(ROOT)),
)
