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
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn, TextIO
from urllib.request import urlopen

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

ROOT = Path(__file__).resolve().parents[1]
SIGNALLED = 128  # a shell adds the number of the signal that ended a process
INTERRUPTED = SIGNALLED + signal.SIGINT
TORCH = ("torch==2.13.0",)
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
# Without bytecode each process compiles the libraries for some 10 s. The others lead out of an environment.
LEFT_OUT = {"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "PIP_PREFIX", "PIP_TARGET"}


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


def end_in_order() -> None:
    """Let SIGTERM and a closed terminal end the program as Ctrl+C does, so that nothing is left behind."""
    for number in filter(None, (signal.SIGTERM, getattr(signal, "SIGHUP", None))):  # Windows has no SIGHUP
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, lambda received, frame: sys.exit(SIGNALLED + received))


def variables() -> dict[str, str]:
    """The environment variables of a process in an environment."""
    return {name: value for name, value in os.environ.items() if name not in LEFT_OUT}


class Environment:
    """A folder below the root. It is made again whenever its installs (arguments of ``pip install``) change."""

    def __init__(self, folder: str, size: str, *installs: tuple[str, ...]) -> None:
        self.home = ROOT / folder
        self.python = self.home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._size, self._installs = size, installs

    @property
    def is_this(self) -> bool:
        """Whether this environment runs the current process."""
        return Path(sys.prefix).resolve() == self.home.resolve()

    def enter(self, *words: str) -> NoReturn:
        """Go on with the environment's Python in the place of this process."""
        sys.stdout.flush()
        if os.name == "nt":  # there the new process would leave the console
            sys.exit(subprocess.call([self.python, *words], env=variables()))
        os.execve(self.python, [str(self.python), *words], variables())

    def ensure(self, *more: tuple[str, ...]) -> None:
        """Make the environment if it is missing, and install ``more`` in addition. Only one start at a time does so."""
        parts = [self._installs, *((install,) for install in more)]
        try:
            with nullcontext() if all(map(self._has, parts)) else self._alone():
                for part in parts:
                    if not self._has(part):
                        self._install(part)
        except OSError as error:
            advice = "" if error.errno == errno.ENOSPC else " Use a copy of this folder that you may write to."
            sys.exit(f"{self.home} cannot be made: {error.strerror or error}.{advice}")
        except subprocess.CalledProcessError as error:
            sys.exit(f"Python could not make a virtual environment. {_why_without_pip(error)}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other start installs here. The system takes the lock from a process that ends or is killed."""
        with Path(f"{self.home}.lock").open("a") as file:
            if not _lock(file):
                sys.stderr.write(f"Another start is installing into {self.home.name}; waiting.\n")
                while not _lock(file):
                    time.sleep(1)
            yield

    def _install(self, part: tuple[tuple[str, ...], ...]) -> None:
        """The stamp is written last, so what was interrupted is installed again."""
        if part == self._installs:
            sys.stderr.write(f"Installing into {self.home.name}, once: {self._size}, some minutes.\n")
            venv.create(self.home, clear=True, with_pip=True)
        for install in part:
            self._pip((*install, *cpu_index()) if install == TORCH else install)
        stamp, fingerprint = self._stamp(part)
        stamp.write_text(fingerprint)

    def _pip(self, install: tuple[str, ...]) -> None:
        """Run pip, and end with its status if it fails. It speaks on stderr."""
        # no-user: a user's pip.conf may say otherwise. no-compile: only a small part of these packages is imported
        options = ("--disable-pip-version-check", "--no-user", "--no-compile")
        words = [str(self.python), "-m", "pip", "install", *options, *install]
        if status := subprocess.call(words, cwd=ROOT, env=variables(), stdout=2):
            sys.exit(status)

    def _has(self, part: tuple[tuple[str, ...], ...]) -> bool:
        stamp, fingerprint = self._stamp(part)
        return stamp.exists() and stamp.read_text() == fingerprint

    def _stamp(self, part: tuple[tuple[str, ...], ...]) -> tuple[Path, str]:
        """A file and what it says where this is installed: a hash of pip's arguments and of the files they name.

        It does not depend on the root.
        """
        words = [word for install in part for word in install]
        texts = [Path(word).read_text("utf-8") if Path(word).is_file() else word for word in words]
        fingerprint = hashlib.sha256("\n".join([platform.python_version(), *texts]).encode()).hexdigest()
        name = "requirements" if part == self._installs else f"also-{fingerprint[:12]}"
        return self.home / f"{name}.sha256", fingerprint


def _lock(file: TextIO) -> bool:
    """Whether this process now has the file alone."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True  # this file system has no locks
    return True


def _why_without_pip(error: subprocess.CalledProcessError) -> str:
    """Why ``ensurepip`` failed. Debian ships it apart from Python."""
    if not find_spec("ensurepip"):
        return "On Debian and Ubuntu: sudo apt install python3-venv"
    lines = (error.output or b"").decode(errors="replace").splitlines()
    return ([line for line in lines if line.startswith("ERROR: ")] or lines or [str(error)])[-1]


PYTEST = requirements("tests/requirements-pytest.txt")
SLOW = requirements("tests/requirements-slow.txt")
DEMO = Environment(
    ".venv-demo",
    "1.5 GB, or 5 with CUDA",
    TORCH,
    requirements("todo_lab/demo/requirements.txt"),
    requirements("todo_lab/demo/requirements-no-deps.txt", deps=False),
)
TESTS = Environment(
    ".venv-test",
    "2 to 4 GB, or 6 with CUDA",
    TORCH,
    requirements("tests/requirements.txt") + PYTEST,
    requirements("tests/requirements-no-deps.txt", deps=False),
    ("--no-deps", "--no-build-isolation", "-e", str(ROOT)),
)
