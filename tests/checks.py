"""What tests/run.py does: lint, types and tests, side by side.

It needs nothing but Python 3.10 to 3.14. The first run makes two environments, later ones reuse them: .venv-test, and
.venv-demo for the tests of the demo's page, whose gradio is newer than the WebUI's. Tests that are marked slow run with
--all alone. Arguments go to pytest in both environments; a path runs only where its tests belong. With --quick there is
neither lint nor types, and the tests are those that ten seconds have room for: see tests/quick.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from todo_lab.environment import DEMO, INTERRUPTED, PYTEST, SIGNALLED, SLOW, TESTS, end_in_order, variables

ROOT = Path(__file__).resolve().parents[1]
DEMO_TESTS = ROOT / "tests" / "todo_lab" / "demo" / "page"
IN_DEMO = "--in-demo"  # the first word of the process that makes the demo's environment and goes on in it
NOTHING_COLLECTED = 5
MOST_WORKERS = 8
ENDS_WITHIN = 10  # seconds, after Ctrl+C
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def main(arguments: list[str]) -> int:
    """Run all checks; returns the exit status of one that fails."""
    end_in_order()
    try:
        if arguments[:1] == [IN_DEMO]:
            DEMO.ensure(PYTEST)
            DEMO.enter("-m", *arguments[1:])
        return run_checks(arguments)
    except KeyboardInterrupt:
        sys.stdout.write("Stopped.\n")
        return INTERRUPTED


def run_checks(arguments: list[str]) -> int:
    """The checks: mypy and the demo's tests run beside the other tests."""
    started = time.monotonic()
    os.environ.update(THREADS)  # the workers share the cores, so each process computes on one
    slow, quick = (option in arguments for option in ("--all", "--quick"))
    arguments = [argument for argument in arguments if argument not in ("--all", "--quick")]
    options = [] if slow or "-m" in arguments else ["-m", "not slow"]
    here, demo = split(arguments)

    workers = min(os.cpu_count() or 1, MOST_WORKERS)  # each more imports all libraries once more
    if quick:
        options, workers = [*options, "-p", "tests.quick"], 0
    with ExitStack() as stack:
        waiting = []
        if demo is not None:  # it makes its environment meanwhile: pip uses one core
            words = pytest(workers if here is None else workers // 4, [*options, *demo])
            program = (sys.executable, ROOT / "tests" / "run.py", IN_DEMO)
            waiting.append(stack.enter_context(beside((*program, *words), words)))
        TESTS.ensure(*([SLOW] if slow else []))
        of_types = []
        if not quick:
            run(["ruff", "check", "."])
            run(["ruff", "format", "--check", "."])
            of_types.append(stack.enter_context(beside((TESTS.python, "-m", "mypy"), ["mypy"])))
        found = [] if here is None else [run(pytest(workers, [*options, *here]))]
        found += [finish() for finish in waiting]
        for finish in of_types:
            finish()
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    collected = found.count(NOTHING_COLLECTED) < len(found)
    told = f"{'These tests' if quick else 'All checks'} passed in {minutes} min {seconds} s.\n"
    sys.stdout.write(told if collected else "No test was found.\n")
    return 0 if collected else NOTHING_COLLECTED


def pytest(workers: int, arguments: list[str]) -> list[str]:
    """pytest's words. Without workers it runs in one process, which saves an import of the libraries."""
    spread = [] if "-n" in arguments else ["-n", str(workers), "--dist", "worksteal"]
    return ["pytest", *spread, *arguments]


def run(words: list[str]) -> int:
    """Run a check in the tests' environment; returns its status, see ``passed``."""
    tell(words)
    with start(TESTS.python, "-m", *words) as process:
        return passed(process.wait())


@contextmanager
def start(*program: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this block."""
    with subprocess.Popen(program, cwd=ROOT, env=variables(), text=True, **options) as process:
        try:
            yield process
        except KeyboardInterrupt:  # a terminal sends Ctrl+C to it as well: pytest tells what has failed so far
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_WITHIN)
            raise
        finally:
            process.terminate()


@contextmanager
def beside(program: tuple[str | Path, ...], words: list[str]) -> Iterator[Callable[[], int]]:
    """Run a check beside another one; it ends with this block.

    Yields a function that waits for it, prints its output and returns its status.
    """

    def finish() -> int:
        status = process.wait()
        output.seek(0)
        tell(words, output.read())
        return passed(status)

    with TemporaryFile("w+", encoding="utf-8", errors="replace") as output, start(*program, stdout=output) as process:
        yield finish


def tell(words: list[str], output: str = "") -> None:
    """Print a check's command and what it has printed."""
    sys.stdout.write(" ".join(("$ python -m", *words)) + "\n" + output)
    sys.stdout.flush()


def passed(status: int) -> int:
    """The status. Ends the program if it is that of a failure."""
    if status not in (0, NOTHING_COLLECTED):
        sys.exit(status if status > 0 else SIGNALLED - status)
    return status


def split(arguments: list[str]) -> tuple[list[str] | None, list[str] | None]:
    """pytest's arguments for the tests' environment and for the demo's; None where no path belongs to it."""
    paths = {argument: path for argument in arguments if (path := test_path(argument))}
    options = [argument for argument in arguments if argument not in paths]
    if not paths:
        return options, [*options, str(DEMO_TESTS)]
    here = [argument for argument, path in paths.items() if not path.is_relative_to(DEMO_TESTS)]
    inside = [argument for argument, path in paths.items() if path.is_relative_to(DEMO_TESTS)]
    above = [str(DEMO_TESTS)] if any(DEMO_TESTS.is_relative_to(path) for path in paths.values()) else []
    demo = above or inside
    return [*options, *here] if here else None, [*options, *demo] if demo else None


def test_path(argument: str) -> Path | None:
    """The file or folder under tests/ that an argument names, if it names one."""
    path = Path(argument.partition("::")[0]).resolve()
    return path if path.exists() and path.is_relative_to(ROOT / "tests") else None
