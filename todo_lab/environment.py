"""Virtual environments for the demo and the tests. It needs Python's standard library alone."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from .python_version import check_python

ROOT = Path(__file__).resolve().parents[1]
SIGNALLED = 128  # a shell adds the number of the signal that ended a process
INTERRUPTED = SIGNALLED + signal.SIGINT
TORCH = ("torch==2.13.0",)
LOG, LAST_LINES = "install.log", 8
CPU_TORCH = "https://download.pytorch.org/whl/cpu"


def cpu_index() -> tuple[str, ...]:
    """Arguments for pip that select torch without CUDA on a Linux machine without an NVIDIA driver.

    On Linux, PyPI's torch brings gigabytes of CUDA libraries. If the index cannot be reached, pip uses PyPI.
    """
    if platform.system() != "Linux" or shutil.which("nvidia-smi"):
        return ()
    try:
        with urlopen(f"{CPU_TORCH}/torch/", timeout=5):
            return ("--extra-index-url", CPU_TORCH)
    except OSError:
        return ()


def requirements(path: str, *, deps: bool = True) -> tuple[str, ...]:
    """The arguments of ``pip install`` for a requirements file; ``path`` is relative to the root."""
    return (*(() if deps else ("--no-deps",)), "-r", str(ROOT / path))


class Environment:
    """A folder below the root. It is made again whenever its installs (arguments of ``pip install``) change."""

    def __init__(self, folder: str, *installs: tuple[str, ...]) -> None:
        self.home = ROOT / folder
        self.python = self.home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._installs = installs

    @property
    def is_this(self) -> bool:
        """Whether this environment runs the current process."""
        return Path(sys.prefix).resolve() == self.home.resolve()

    def ensure(self) -> None:
        """Make the environment if it is missing. The stamp is written last, so an interrupted one is made again."""
        check_python()
        stamp, fingerprint = self.home / "requirements.sha256", self._fingerprint(self._installs)
        if stamp.exists() and stamp.read_text() == fingerprint:
            return
        log = f"{self.home.name}/{LOG}"
        sys.stdout.write(f"Installing into {self.home.name}, once: about 2 GB, some minutes. pip's output: {log}\n")
        sys.stdout.flush()
        try:
            venv.create(self.home, clear=True, with_pip=True)
            for install in self._installs:
                self._pip((*install, *cpu_index()) if install == TORCH else install)
            stamp.write_text(fingerprint)
        except OSError as error:
            advice = "" if error.errno == errno.ENOSPC else " Use a copy of this folder that you may write to."
            sys.exit(f"{self.home} cannot be made: {error.strerror or error}.{advice}")
        except subprocess.CalledProcessError as error:
            sys.exit(f"Python could not make a virtual environment. {_why_without_pip(error)}")

    def also(self, install: tuple[str, ...]) -> None:
        """Install something in addition, once."""
        fingerprint = self._fingerprint((install,))
        stamp = self.home / f"also-{fingerprint[:12]}.sha256"
        if not stamp.exists():
            self._pip(install)
            stamp.write_text(fingerprint)

    def start(self, *args: str, cwd: Path = ROOT, **options: Any) -> subprocess.Popen[str]:
        """Start the environment's Python. It keeps bytecode: to compile the libraries takes some 10 s a process."""
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return subprocess.Popen([str(self.python), *args], cwd=cwd, env=env, text=True, **options)

    def run(self, *args: str, cwd: Path = ROOT, **options: Any) -> int:
        """Run the environment's Python; returns the exit status. SIGTERM and Ctrl+C end the child too."""
        interrupted = False
        with _sigterm() as on_sigterm:
            child = self.start(*args, cwd=cwd, **options)
            on_sigterm(child.terminate)
            while True:
                try:
                    status = child.wait()
                except KeyboardInterrupt:  # a terminal sends Ctrl+C to the child as well
                    interrupted = True
                    continue
                return INTERRUPTED if interrupted else status if status >= 0 else SIGNALLED - status

    def check(self, module: str, *args: str) -> None:
        """Print the command, run the module, and exit with its status if it fails."""
        sys.stdout.write(" ".join(("$ python -m", module, *args)) + "\n")
        sys.stdout.flush()
        if status := self.run("-m", module, *args):
            sys.exit(status)

    def _pip(self, install: tuple[str, ...]) -> None:
        """Run pip. Its output goes to a file; the end of that is printed if it fails."""
        # no-user: a user's pip.conf may say otherwise. no-compile: only a small part of these packages is imported
        words = ("-m", "pip", "install", "--disable-pip-version-check", "--no-user", "--no-compile", *install)
        path = self.home / LOG
        with path.open("a", encoding="utf-8") as log:
            status = self.run(*words, stdout=log, stderr=subprocess.STDOUT)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        if status:
            lines = path.read_text("utf-8", errors="replace").splitlines()
            sys.stderr.write("\n".join([*lines[-LAST_LINES:], f"pip failed; all of its output: {path}\n"]))
            sys.exit(status)

    @staticmethod
    def _fingerprint(installs: tuple[tuple[str, ...], ...]) -> str:
        """A hash of the arguments and of the files they name. It does not depend on the root."""
        words = [word for install in installs for word in install]
        texts = [Path(word).read_text("utf-8") if Path(word).is_file() else word for word in words]
        return hashlib.sha256("\n".join([platform.python_version(), *texts]).encode()).hexdigest()


def _why_without_pip(error: subprocess.CalledProcessError) -> str:
    """Why ``ensurepip`` failed. Debian ships it apart from Python."""
    if not find_spec("ensurepip"):
        return "On Debian and Ubuntu: sudo apt install python3-venv"
    lines = (error.output or b"").decode(errors="replace").splitlines()
    return ([line for line in lines if line.startswith("ERROR: ")] or lines or [str(error)])[-1]


@contextmanager
def _sigterm() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Yields a function that registers what SIGTERM does while this is open, also for a SIGTERM that came before.

    Only the main thread can handle signals; other threads leave SIGTERM as it is.
    """
    actions: list[Callable[[], None]] = []
    received: list[int] = []

    def handle(signum: int, frame: Any) -> None:
        received.append(signum)
        for action in actions:
            action()

    def register(action: Callable[[], None]) -> None:
        actions.append(action)
        if received:
            action()

    if threading.current_thread() is not threading.main_thread():
        yield register
        return
    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield register
    finally:
        signal.signal(signal.SIGTERM, previous)


PYTEST = requirements("tests/requirements-pytest.txt")
SLOW = requirements("tests/requirements-slow.txt")
DEMO = Environment(
    ".venv-demo",
    TORCH,
    requirements("todo_lab/demo/requirements.txt"),
    requirements("todo_lab/demo/requirements-no-deps.txt", deps=False),
)
TESTS = Environment(
    ".venv-test",
    TORCH,
    requirements("tests/requirements.txt") + PYTEST,
    requirements("tests/requirements-no-deps.txt", deps=False),
    ("--no-deps", "--no-build-isolation", "-e", str(ROOT)),
)
