"""What tests/run.py does: lint, types, the tests, and those of the demo's page. It ends with the first that fails.

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
from contextlib import suppress
from pathlib import Path

from todo_lab.environment import (
    DEMO,
    INTERRUPTED,
    PYTEST,
    SIGNALLED,
    SLOW,
    TESTS,
    Environment,
    end_in_order,
    variables,
)

ROOT = Path(__file__).resolve().parents[1]
DEMO_TESTS = ROOT / "tests" / "todo_lab" / "demo" / "page"
NOTHING_COLLECTED = 5
MOST_WORKERS = 8
ENDS_WITHIN = 10  # seconds, after Ctrl+C
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def main(arguments: list[str]) -> int:
    """Run all checks; returns the exit status of one that fails."""
    end_in_order()
    try:
        return run_checks(arguments)
    except KeyboardInterrupt:
        sys.stdout.write("Stopped.\n")
        return INTERRUPTED


def run_checks(arguments: list[str]) -> int:
    """The checks, one after the other."""
    started = time.monotonic()
    os.environ.update(THREADS)  # the workers share the cores, so each process computes on one
    slow, quick = (option in arguments for option in ("--all", "--quick"))
    arguments = [argument for argument in arguments if argument not in ("--all", "--quick")]
    options = [] if slow or "-m" in arguments else ["-m", "not slow"]
    workers = min(os.cpu_count() or 1, MOST_WORKERS)  # each more imports all libraries once more
    if quick:
        options, workers = [*options, "-p", "tests.quick"], 0
    if "-n" not in arguments:  # without workers pytest runs in one process, which saves an import of the libraries
        options = ["-n", str(workers), "--dist", "worksteal", *options]
    here, demo = split(arguments)

    TESTS.ensure(*([SLOW] if slow else []))
    for lint in () if quick else (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        run(TESTS, lint)
    found = [] if here is None else [run(TESTS, ["pytest", *options, *here])]
    if demo is not None:
        DEMO.ensure(PYTEST)
        found.append(run(DEMO, ["pytest", *options, *demo]))
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    collected = found.count(NOTHING_COLLECTED) < len(found)
    told = f"{'These tests' if quick else 'All checks'} passed in {minutes} min {seconds} s.\n"
    sys.stdout.write(told if collected else "No test was found.\n")
    return 0 if collected else NOTHING_COLLECTED


def run(environment: Environment, words: list[str]) -> int:
    """Run a check; returns its status, and ends the program if it is that of a failure."""
    sys.stdout.write(" ".join(("$ python -m", *words)) + "\n")
    sys.stdout.flush()
    with subprocess.Popen([environment.python, "-m", *words], cwd=ROOT, env=variables()) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:  # a terminal sends Ctrl+C to it as well: pytest tells what has failed so far
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_WITHIN)
            raise
        finally:
            process.terminate()
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
