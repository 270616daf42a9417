"""tests/checks.py: what runs where, and that no failure is lost. No test is run here."""

import re
import signal
import subprocess
import sys

import pytest

from tests import checks as command
from todo_lab.environment import Environment

DEMO, DEMO_PYTHON = str(command.DEMO_TESTS), command.DEMO.python
NOTHING = command.NOTHING_COLLECTED
SAMPLE = """
import pytest
from tests import naive, quick

@pytest.mark.long
def test_long(): ...

@pytest.mark.parametrize("case", [1, 2, 3])
def test_a(case):
    quick.SECONDS = 99 if case == 1 else 0

def test_b():
    assert [naive.examples(count).max_examples for count in (300, 12)] == [15, 1]

def test_c():
    assert False
"""


@pytest.fixture
def checks(monkeypatch):
    """Runs the command on checks that end with these statuses; the status, and the words of each check and install."""

    def checked(*arguments, **statuses):
        ran = {}

        def popen(program, **options):
            python, _, *words = program
            name = {DEMO_PYTHON: "demo"}.get(python, "here") if words[0] == "pytest" else words[0]
            ran[name] = words
            ends = f"print('{name} says so'); raise SystemExit({statuses.get(name, 0)})"
            return start([sys.executable, "-c", ends], **options)

        monkeypatch.setattr(Environment, "ensure", lambda self, *more: ran.update({self.home.name: list(more)}))
        monkeypatch.setattr(command.subprocess, "Popen", popen)
        try:
            status = command.main(list(arguments))
        except SystemExit as ended:
            status = ended.code
        return status, ran

    before, start = signal.getsignal(signal.SIGTERM), subprocess.Popen
    yield checked
    signal.signal(signal.SIGTERM, before)


def test_all_checks_run_and_print_what_they_say_and_sigterm_ends_them(checks, capfd):
    status, ran = checks()
    assert status == 0
    assert list(ran) == [".venv-test", "ruff", "mypy", "here", ".venv-demo", "demo"]
    assert ran["demo"][-1] == DEMO
    printed = capfd.readouterr().out
    assert f"$ python -m {' '.join(ran['demo'])}\ndemo says so\n" in printed
    assert printed.splitlines()[-1].startswith("All checks passed in 0 min")
    with pytest.raises(SystemExit, match="143"):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("failing", ["ruff", "mypy", "here", "demo"])
def test_a_failure_of_any_check_is_the_commands(checks, capfd, failing):
    assert checks(**{failing: 3})[0] == 3
    printed = capfd.readouterr().out
    assert f"{failing} says so" in printed
    assert "All checks passed" not in printed


@pytest.mark.parametrize(("here", "demo", "status"), [(NOTHING, 0, 0), (0, NOTHING, 0), (NOTHING, NOTHING, NOTHING)])
def test_no_test_is_a_failure_only_where_there_is_none_at_all(checks, here, demo, status):
    assert checks("-k", "something", here=here, demo=demo)[0] == status


@pytest.mark.parametrize(
    ("path", "here", "demo"),
    [("tests/repository", "tests/repository", None), (DEMO, None, DEMO), ("tests/todo_lab", "tests/todo_lab", DEMO)],
)
def test_a_path_runs_only_where_its_tests_belong(checks, path, here, demo):
    ran = checks(path, "--all")[1]
    assert [ran[name][-1] if name in ran else None for name in ("here", "demo")] == [here, demo]


@pytest.mark.parametrize(("words", "installed"), [([], []), (["--all"], [command.SLOW])])
def test_slow_tests_run_and_their_packages_are_installed_with_all_alone(checks, words, installed):
    _, ran = checks(*words)
    assert ("not slow" in ran["here"]) == (not words)
    assert ran[".venv-test"] == installed


@pytest.mark.parametrize(("path", "name"), [("tests/repository", "here"), (DEMO, "demo")])
def test_a_quick_look_is_one_process_without_lint_and_types(checks, capfd, path, name):
    status, ran = checks("--quick", path)
    assert "\nThese tests passed in 0 min" in capfd.readouterr().out
    assert (status, {*ran} - {".venv-demo"}) == (0, {name, ".venv-test"})
    assert " ".join(ran[name]).startswith("pytest -n 0 ")
    assert ran[name][-3:] == ["-p", "tests.quick", path]


def test_a_quick_look_runs_each_test_once_and_then_its_other_cases_while_there_is_time(tmp_path):
    file = tmp_path / "test_sample.py"
    file.write_text(SAMPLE, "utf-8")
    words = ["-vs", "-p", "no:cacheprovider", "-p", "tests.quick", "--rootdir", str(tmp_path), str(file)]
    output = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=command.ROOT, text=True, capture_output=True)
    ran = re.findall(r"::test_(\S+) ([A-Z])", output.stdout)
    assert ran == [("a[1]", "P"), ("b", "P"), ("c", "F"), ("a[2]", "P"), ("a[3]", "S")]
    assert output.returncode == 1
    assert "1 failed, 3 passed, 1 skipped, 1 deselected" in output.stdout, "all has been written"


@pytest.mark.parametrize(("sleeps", "within", "status"), [(0.3, 60, 0), (3600, 0.1, -signal.SIGTERM)])
def test_ctrl_c_is_one_line_and_ends_what_does_not_end_by_itself(monkeypatch, capsys, sleeps, within, status):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, program, **options):
            super().__init__([sys.executable, "-c", f"import time; time.sleep({sleeps})"], **options)

        def wait(self, timeout=None):
            if started:
                return super().wait(timeout)
            started.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(Environment, "ensure", lambda self, *more: None)
    monkeypatch.setattr(command.subprocess, "Popen", Interrupted)
    monkeypatch.setattr(command, "ENDS_WITHIN", within)
    assert command.main([]) == 130
    assert started[0].returncode == status
    assert capsys.readouterr().out.endswith("\nStopped.\n")
