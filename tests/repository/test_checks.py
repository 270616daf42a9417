"""tests/checks.py: what runs where, and that no failure is lost. No test is run here."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import checks as command
from todo_lab.environment import Environment

DEMO = str(command.DEMO_TESTS)
NOTHING = command.NOTHING_COLLECTED


@pytest.fixture
def installed():
    """What is installed in addition, and where."""
    return []


@pytest.fixture
def checks(monkeypatch, installed):
    """Runs the command on checks that end with these statuses; the status, and the words of each check."""

    def checked(*arguments: str, cores: int = 8, **statuses: int) -> tuple[int, dict[str, list[str]]]:
        ran: dict[str, list[str]] = {}

        def start(self, _, *words, cwd=None, **options):
            name = words[0] if words[0] != "pytest" else {command.TESTS: "here", command.DEMO: "demo"}[self]
            ran[name] = list(words)
            program = f"print('{name} says so'); raise SystemExit({statuses.get(name, 0)})"
            return subprocess.Popen([sys.executable, "-c", program], text=True, **options)

        monkeypatch.setattr(Environment, "start", start)
        monkeypatch.setattr(command.os, "cpu_count", lambda: cores)
        try:
            status = command.main(list(arguments))
        except SystemExit as ended:
            status = ended.code
        return status, ran

    monkeypatch.setattr(Environment, "ensure", lambda _: None)
    monkeypatch.setattr(Environment, "also", lambda self, install: installed.append((self, install)))
    before = signal.getsignal(signal.SIGTERM)
    yield checked
    signal.signal(signal.SIGTERM, before)


def test_all_checks_run_and_those_beside_print_their_output(checks, capfd):
    status, ran = checks()
    assert status == 0
    assert set(ran) == {"ruff", "mypy", "here", "demo"}
    assert ran["demo"][-1] == DEMO
    printed = capfd.readouterr().out
    for name in ("here", "mypy", "demo"):
        assert printed.count(f"{name} says so") == 1
    assert printed.splitlines()[-1].startswith("All checks passed in 0 min")


@pytest.mark.parametrize("failing", ["ruff", "mypy", "here", "demo"])
def test_a_failure_of_any_check_is_the_commands(checks, capfd, failing):
    assert checks(**{failing: 3})[0] == 3
    printed = capfd.readouterr().out
    assert f"{failing} says so" in printed
    assert "All checks passed" not in printed


@pytest.mark.parametrize(("here", "demo", "status"), [(NOTHING, 0, 0), (0, NOTHING, 0), (NOTHING, NOTHING, NOTHING)])
def test_no_test_is_a_failure_only_where_there_is_none_at_all(checks, here, demo, status):
    assert checks("-k", "something", here=here, demo=demo)[0] == status


def test_a_path_runs_only_where_its_tests_belong(checks):
    assert set(checks("tests/repository")[1]) == {"ruff", "mypy", "here"}
    assert set(checks(DEMO)[1]) == {"ruff", "mypy", "demo"}
    both = checks("tests/todo_lab")[1]
    assert (both["here"][-1], both["demo"][-1]) == ("tests/todo_lab", DEMO)


@pytest.mark.parametrize(("cores", "here", "demo"), [(2, "2", "0"), (4, "4", "1"), (8, "8", "2"), (64, "8", "2")])
def test_workers_share_the_cores(checks, cores, here, demo):
    _, ran = checks(cores=cores)
    assert ran["here"][1:3] == ["-n", here]
    assert ran["demo"][1:3] == ["-n", demo]
    assert checks(DEMO, cores=cores)[1]["demo"][1:3] == ["-n", here]
    assert checks("-n", "5")[1]["demo"].count("-n") == 1


def test_slow_tests_run_and_their_packages_are_installed_with_all_alone(checks, installed):
    slow = (command.TESTS, command.SLOW)
    assert "not slow" in checks()[1]["here"]
    assert slow not in installed
    assert "not slow" not in checks("--all")[1]["here"]
    assert slow in installed


def test_what_runs_beside_is_ended(monkeypatch):
    monkeypatch.setattr(Environment, "python", Path(sys.executable), raising=False)
    started = []
    true_start = Environment.start
    monkeypatch.setattr(Environment, "start", lambda *args, **o: started.append(true_start(*args, **o)) or started[0])
    monkeypatch.setattr(Environment, "ensure", lambda _: None)
    environment = Environment("unused")
    environment.python = Path(sys.executable)
    with pytest.raises(KeyboardInterrupt), command.beside(environment, ["http.server", "0"]):
        raise KeyboardInterrupt
    assert started[0].returncode is not None


def test_ctrl_c_is_one_line_also_while_an_environment_is_made_beside(monkeypatch, capsys):
    def interrupted(self):
        if self is command.DEMO:
            raise SystemExit("pip was stopped too")
        raise KeyboardInterrupt

    monkeypatch.setattr(Environment, "ensure", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    assert command.main([]) == 130
    signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().out == "Stopped.\n"
