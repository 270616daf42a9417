"""The environments of the demo and the tests, without installing anything."""

import ast
import errno
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from textwrap import dedent
from unittest.mock import Mock

import pytest

from todo_lab import environment, python_version
from todo_lab.environment import Environment, cpu_index, requirements
from todo_lab.python_version import NEWEST, OLDEST

ROOT = Path(__file__).parents[2]
PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
PIP = "-m pip install --disable-pip-version-check --no-user --no-compile"


@pytest.fixture
def made(monkeypatch, tmp_path):
    """An environment below a temporary root, and a function that says what its Python does after noting its words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "cpu_index", lambda: ("INDEX",))
    monkeypatch.setattr(environment.venv, "create", lambda home, **_: home.mkdir(exist_ok=True))
    (tmp_path / "requirements.txt").write_text("one\n")
    env = Environment("env", "1 GB", environment.TORCH, requirements("requirements.txt"))
    env.python = tmp_path / "python"

    def does(lines):
        env.python.write_text(f'#!/bin/sh\necho "$@" >> asked\n{lines}\n')
        env.python.chmod(0o755)

    does("")
    return env, does


def asked():
    """What pip was asked for."""
    return [line.removeprefix(f"{PIP} ") for line in Path("asked").read_text().splitlines()]


def test_it_is_made_once_and_again_when_something_changes(made, monkeypatch, tmp_path):
    env, does = made
    base = ["torch==2.13.0 INDEX", f"-r {tmp_path / 'requirements.txt'}"]
    for _ in range(2):
        env.ensure()
        assert asked() == base
    for _ in range(2):
        env.ensure(("more",))
        assert asked() == [*base, "more"]
    (tmp_path / "requirements.txt").write_text("two\n")
    env.ensure()
    assert asked() == [*base, "more", *base]
    monkeypatch.setattr(environment.platform, "python_version", lambda: "3.98.0")
    does("exit 7")
    with pytest.raises(SystemExit, match="7"):
        env.ensure()
    does("")
    env.ensure()
    assert asked()[5:] == [base[0], *base], "an interrupted one is made again"


def test_a_second_start_waits_for_the_first_and_installs_nothing(made, capfd):
    env, does = made
    does("sleep 0.5")
    starts = [threading.Thread(target=env.ensure) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(asked()) == 2
    assert capfd.readouterr().err.count("Another start is installing into env; waiting.\n") == 1


def test_nohup_keeps_a_closed_terminal_from_ending_it():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    environment.end_in_order()
    assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN


def test_nothing_of_outside_leads_out_of_it(made, monkeypatch):
    """Nor is bytecode forbidden there, as images and shells often do: each process would compile torch again."""
    env, does = made
    for name in environment.LEFT_OUT:
        monkeypatch.setenv(name, "1")
    does("env >> variables")
    env.ensure()
    entered = []
    monkeypatch.setattr(environment.os, "execve", lambda path, words, variables: entered.append((words, variables)))
    env.enter("app.py")
    ((words, variables),) = entered
    assert words == [str(env.python), "app.py"]
    assert "HOME" in variables
    told = {line.partition("=")[0] for line in Path("variables").read_text().splitlines()} | variables.keys()
    assert not told & environment.LEFT_OUT
    assert {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX"} <= environment.LEFT_OUT


def told_if(monkeypatch, env, owner, name, error):
    """What the user is told if something cannot be done."""
    monkeypatch.setattr(owner, name, Mock(side_effect=error))
    with pytest.raises(SystemExit) as ended:
        env.ensure()
    return ended.value.code


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EACCES, "Permission denied. Use a copy of this folder that you may write to."),
        (errno.ENOSPC, "No space left on device."),
    ],
)
@pytest.mark.parametrize("what", [(environment.venv, "create"), (Path, "write_text")])
def test_a_folder_that_cannot_be_written_is_one_line(made, monkeypatch, what, number, told):
    env, _ = made
    found = told_if(monkeypatch, env, *what, OSError(number, os.strerror(number)))
    assert found == f"{env.home} cannot be made: {told}"


@pytest.mark.parametrize("has_ensurepip", [True, False])
def test_only_a_python_without_pip_is_told_to_install_it(made, monkeypatch, has_ensurepip):
    no_space, no_pip = "ERROR: No space left on device", "On Debian and Ubuntu: sudo apt install python3-venv"
    error = subprocess.CalledProcessError(1, [], f"Looking in links\n{no_space}\nCalledProcessError: ...".encode())
    monkeypatch.setattr(environment, "find_spec", lambda name: has_ensurepip or None)
    told = no_space if has_ensurepip else no_pip
    found = told_if(monkeypatch, made[0], environment.venv, "create", error)
    assert found == f"Python could not make a virtual environment. {told}"


def test_the_demo_enters_its_environment_once_and_says_when_its_set_up_is_stopped(monkeypatch, capsys):
    """Whatever Python runs there."""
    monkeypatch.syspath_prepend(str(ROOT))
    app = importlib.import_module("app")
    monkeypatch.setattr(Environment, "ensure", lambda self: None)
    monkeypatch.setattr(Environment, "enter", lambda self, *words: sys.exit(words))
    with pytest.raises(SystemExit) as entered:
        app.main(["--no-page"])
    assert entered.value.code == (str(ROOT / "app.py"), "--here", "--no-page")
    monkeypatch.setattr(app, "run_module", lambda *_: 7)
    assert app.main([*entered.value.code[1:]]) == 7
    capsys.readouterr()
    monkeypatch.setattr(Environment, "ensure", Mock(side_effect=KeyboardInterrupt))
    assert app.main([]) == 130
    assert capsys.readouterr().out == "Stopped.\n"


@pytest.mark.parametrize(
    ("system", "driver", "reachable", "asked"),
    [
        ("Linux", None, True, True),
        ("Linux", None, False, False),
        ("Linux", "/bin/nvidia-smi", True, False),
        ("Darwin", None, True, False),
    ],
)
def test_torch_without_cuda_where_there_is_no_gpu(monkeypatch, system, driver, reachable, asked):
    opened = Mock(return_value=nullcontext(), side_effect=None if reachable else OSError("no such host"))
    monkeypatch.setattr(environment.platform, "system", lambda: system)
    monkeypatch.setattr(environment.shutil, "which", lambda name: driver)
    monkeypatch.setattr(environment, "urlopen", opened)
    assert bool(cpu_index()) == asked


@pytest.mark.parametrize(("version", "allowed"), [((3, 9), False), (OLDEST, True), (NEWEST, True), ((3, 15), False)])
def test_a_python_without_wheels_is_refused(monkeypatch, version, allowed):
    monkeypatch.setattr(sys, "version_info", (*version, 1, "final", 0))
    monkeypatch.setattr(python_version.platform, "python_version", lambda: "the version of this one")
    with nullcontext() if allowed else pytest.raises(SystemExit) as refused:
        python_version.check_python()
    if refused:
        assert str(refused.value) == "Python 3.10 to 3.14 is needed; this is the version of this one."


@pytest.mark.parametrize("run", ["path('app.py')", "path('tests/run.py')", "module('todo_lab')"])
def test_every_command_says_so_first(run):
    """Before it imports what an old Python cannot read."""
    lines = f"""
        import platform, runpy, sys
        sys.version_info, platform.python_version = (3, 6), lambda: "3.6.15"
        sys.argv, sys.path[0] = ["command"], "."
        try:
            runpy.run_{run}
        finally:
            assert not {{"todo_lab.environment", "todo_lab.command_line"}} & set(sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", dedent(lines)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "Python 3.10 to 3.14 is needed; this is 3.6.15.\n")


@pytest.mark.parametrize("name", ["app.py", "tests/run.py", "todo_lab/__init__.py", "todo_lab/python_version.py"])
def test_an_old_python_can_read_what_refuses_it(name):
    tree = ast.parse((ROOT / name).read_text(), feature_version=(3, 4))
    nodes = list(ast.walk(tree))
    assert not [node for node in nodes if isinstance(node, (ast.JoinedStr, ast.AnnAssign))]
    assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert not [node for node in nodes if getattr(node, "annotation", None) or getattr(node, "returns", None)]


def test_pages_and_classifiers_name_the_same_range():
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"Python {oldest} to {newest}" in (ROOT / page).read_text()
    declared = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={oldest}"' in declared
    assert set(re.findall(r"Python :: (3\.\d+)", declared)) == set(PYTHONS)
