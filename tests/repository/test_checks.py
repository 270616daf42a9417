"""tests/checks.py: what runs where, and that no failure is lost. No test is run here."""

import re
import signal
import subprocess
import sys

import pytest

from tests import checks as command
from todo_lab.environment import Environment

DEMO = str(command.DEMO_TESTS)
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

        def started(*program, **options):
            *_, is_in, name = program[: 4 if command.IN_DEMO in program else 3]
            name = {command.IN_DEMO: "demo", "-m": "here"}[is_in] if name == "pytest" else name
            ran[name] = list(program[program.index(is_in) + 1 :])
            ends = f"print('{name} says so'); raise SystemExit({statuses.get(name, 0)})"
            return start(sys.executable, "-c", ends, **options)

        monkeypatch.setattr(Environment, "ensure", lambda self, *more: ran.update({self.home.name: list(more)}))
        monkeypatch.setattr(command, "start", started)
        try:
            status = command.main(list(arguments))
        except SystemExit as ended:
            status = ended.code
        return status, ran

    before, start = signal.getsignal(signal.SIGTERM), command.start
    yield checked
    signal.signal(signal.SIGTERM, before)


def test_all_checks_run_and_print_what_they_say_and_sigterm_ends_them(checks, capfd):
    status, ran = checks()
    assert status == 0
    assert set(ran) == {"ruff", "mypy", "here", "demo", ".venv-test"}
    assert ran["demo"][-1] == DEMO
    printed = capfd.readouterr().out
    for name in ("here", "mypy", "demo"):
        assert printed.count(f"{name} says so") == 1
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


@pytest.mark.parametrize(("words", "installed"), [([], []), (["--all"], [command.SLOW])])
def test_slow_tests_run_and_their_packages_are_installed_with_all_alone(checks, words, installed):
    _, ran = checks(*words)
    assert ("not slow" in ran["here"]) == (not words)
    assert ran[".venv-test"] == installed


def test_a_quick_look_runs_each_test_once_and_then_its_other_cases_while_there_is_time(tmp_path):
    file = tmp_path / "test_sample.py"
    file.write_text(SAMPLE, "utf-8")
    words = ["-vs", "-p", "no:cacheprovider", "-p", "tests.quick", "--rootdir", str(tmp_path), str(file)]
    output = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=command.ROOT, text=True, capture_output=True)
    ran = re.findall(r"::test_(\S+) ([A-Z])", output.stdout)
    assert ran == [("a[1]", "P"), ("b", "P"), ("c", "F"), ("a[2]", "P"), ("a[3]", "S")]
    assert output.returncode == 1
    assert "1 failed, 3 passed, 1 skipped, 1 deselected" in output.stdout, "all has been written"
