"""The environments of the demo and the tests, without installing anything."""

from __future__ import annotations

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
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pytest
from packaging.requirements import Requirement

from todo_lab import environment, python_version
from todo_lab.environment import DEMO, TESTS, Environment, cpu_index, requirements
from todo_lab.python_version import NEWEST, OLDEST


@pytest.fixture
def made(monkeypatch, tmp_path):
    """An environment below a temporary root and the list of its installs, which are not run."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    (tmp_path / "requirements.txt").write_text("one\n")
    installed = []
    monkeypatch.setattr(environment, "cpu_index", lambda: ("INDEX",))
    monkeypatch.setattr(environment.venv, "create", lambda home, **_: home.mkdir(exist_ok=True))
    true_run = Environment.run

    def run(self, *args, **options):
        return installed.append(args[6:]) or 0 if args[:2] == ("-m", "pip") else true_run(self, *args, **options)

    monkeypatch.setattr(Environment, "run", run)
    return Environment("env", environment.TORCH, requirements("requirements.txt")), installed


PARENT = """
import sys
from pathlib import Path
from todo_lab.environment import Environment

environment = Environment("unused")
environment.python = Path(sys.executable)
sys.exit(environment.run("-c", "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"))
"""
ROOT = Path(__file__).parents[2]
PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
# audioop left Python with 3.13; numpy 1 and pillow 10 have no wheels from there on, and packages ask for later ones.
# Without Ray a slow test is skipped.
WITHOUT = {version: {"audioop-lts"} for version in ("3.10", "3.11", "3.12")}
WITHOUT |= {"3.13": {"numpy", "pillow"}, "3.14": {"numpy", "pillow"}}


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without a signal")
def test_sigterm_ends_the_child_too():
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=env) as parent:
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(timeout=600) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_sigterm_before_the_child_starts_ends_it_as_well(made, monkeypatch):
    env, _ = made
    true_popen = subprocess.Popen

    def late(arguments, **options):
        signal.raise_signal(signal.SIGTERM)
        return true_popen([sys.executable, *arguments[1:]], **options)

    monkeypatch.setattr(environment.subprocess, "Popen", late)
    started = signal.getsignal(signal.SIGTERM)
    assert env.run("-c", "import time; time.sleep(3600)", cwd=ROOT) == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == started


def test_its_processes_keep_bytecode(made, monkeypatch):
    """Images and shells often forbid it. Each process would compile torch and all others again."""
    env, _ = made
    env.python = Path(sys.executable)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert env.run("-c", "import sys; sys.exit(sys.dont_write_bytecode)", cwd=ROOT) == 0


def test_it_is_made_once(made, tmp_path):
    env, installed = made
    env.ensure()
    env.ensure()
    assert installed == [("torch==2.13.0", "INDEX"), ("-r", str(tmp_path / "requirements.txt"))]


def test_changed_requirements_make_it_again(made, tmp_path):
    env, installed = made
    env.ensure()
    (tmp_path / "requirements.txt").write_text("two\n")
    env.ensure()
    assert len(installed) == 4


def test_an_interrupted_one_is_made_again(made, monkeypatch):
    env, installed = made

    with monkeypatch.context() as patch:
        patch.setattr(Environment, "run", lambda *_, **__: 7)
        with pytest.raises(SystemExit, match="7"):
            env.ensure()
    env.ensure()
    assert len(installed) == 2


def test_pips_output_goes_to_a_file_whose_end_is_printed_if_it_fails(made, monkeypatch, capfd):
    def fails(self, *args, stdout, **_):
        stdout.write("".join(f"line {number}\n" for number in range(100)))
        return 1

    monkeypatch.setattr(Environment, "run", fails)
    with pytest.raises(SystemExit, match="1"):
        made[0].ensure()
    printed = capfd.readouterr()
    assert "pip's output: env/install.log" in printed.out
    assert printed.err.splitlines()[-2:] == ["line 99", f"pip failed; all of its output: {made[0].home}/install.log"]
    assert "line 50" not in printed.err


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EACCES, "Permission denied. Use a copy of this folder that you may write to."),
        (errno.ENOSPC, "No space left on device."),
    ],
)
@pytest.mark.parametrize("when", ["at first", "at last"])
def test_a_folder_that_cannot_be_written_is_one_line(made, monkeypatch, number, told, when):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    if when == "at first":
        monkeypatch.setattr(environment.venv, "create", fails)
    else:
        monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises(SystemExit) as ended:
        made[0].ensure()
    assert ended.value.code == f"{made[0].home} cannot be made: {told}"


@pytest.mark.parametrize(
    ("has_ensurepip", "told"),
    [
        (False, "On Debian and Ubuntu: sudo apt install python3-venv"),
        (True, "ERROR: Could not install packages: No space left on device"),
    ],
)
def test_only_a_python_without_pip_is_told_to_install_it(made, monkeypatch, has_ensurepip, told):
    output = b"Looking in links\nERROR: Could not install packages: No space left on device\nCalledProcessError: ..."

    def fails(*_, **__):
        raise subprocess.CalledProcessError(1, ["python", "-m", "ensurepip"], output)

    monkeypatch.setattr(environment.venv, "create", fails)
    monkeypatch.setattr(environment, "find_spec", lambda name: has_ensurepip or None)
    with pytest.raises(SystemExit) as ended:
        made[0].ensure()
    assert ended.value.code == f"Python could not make a virtual environment. {told}"


def test_pip_installs_here_whatever_the_users_pip_conf_says(monkeypatch, tmp_path):
    """The environment's own pip is asked, with a package that it has."""
    env = Environment("unused")
    env.home, env.python = tmp_path, Path(sys.executable)
    monkeypatch.setenv("PIP_USER", "1")
    env._pip(("--dry-run", "pip"))
    assert "already satisfied: pip" in (tmp_path / environment.LOG).read_text()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
def test_ctrl_c_during_an_installation_is_no_failure_of_pip(made, monkeypatch, capfd):
    """A terminal sends it to both; pip then ends with an error of its own."""
    env, _ = made
    true_popen = subprocess.Popen

    def interrupted(*_, **options):
        child = true_popen([sys.executable, "-c", "import time; time.sleep(3600)"], **options)
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        threading.Timer(1, child.terminate).start()
        return child

    monkeypatch.undo()
    monkeypatch.setattr(environment.subprocess, "Popen", interrupted)
    env.home.mkdir()
    with pytest.raises(KeyboardInterrupt):
        env._pip(("something",))
    assert capfd.readouterr().err == ""


def test_a_link_to_an_environment_is_that_environment(made, monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "env").symlink_to(tmp_path / "elsewhere")
    assert not made[0].is_this
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "elsewhere"))
    assert made[0].is_this


def test_the_demo_starts_itself_once(monkeypatch):
    """Its child must not start another one, whatever Python it runs on."""
    started = []
    monkeypatch.setattr(Environment, "ensure", lambda self: None)
    monkeypatch.setattr(Environment, "run", lambda self, *args, cwd: started.append(args[1:]) or 0)
    monkeypatch.syspath_prepend(str(ROOT))
    app = importlib.import_module("app")
    assert app.main(["--no-page"]) == 0
    assert started == [("--here", "--no-page")]
    monkeypatch.setattr(app, "run_module", lambda *_: 7)
    assert app.main([*started[0]]) == 7
    assert len(started) == 1


def test_the_demo_ends_with_one_line_when_its_set_up_is_stopped(monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Environment, "ensure", interrupted)
    monkeypatch.syspath_prepend(str(ROOT))
    assert importlib.import_module("app").main([]) == 130
    assert capsys.readouterr().out == "Stopped.\n"


def test_an_additional_install_runs_once(made):
    env, installed = made
    env.ensure()
    env.also(("pytest",))
    env.also(("pytest",))
    assert installed[2:] == [("pytest",)]


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
    def opened(url, timeout):
        if not reachable:
            raise OSError("no such host")
        return nullcontext()

    monkeypatch.setattr(environment.platform, "system", lambda: system)
    monkeypatch.setattr(environment.shutil, "which", lambda name: driver)
    monkeypatch.setattr(environment, "urlopen", opened)
    assert bool(cpu_index()) == asked


@pytest.mark.parametrize(("version", "allowed"), [((3, 9), False), (OLDEST, True), (NEWEST, True), ((3, 15), False)])
def test_a_python_without_wheels_is_refused_before_anything_is_made(made, monkeypatch, version, allowed):
    env, installed = made
    monkeypatch.setattr(sys, "version_info", (*version, 1, "final", 0))
    monkeypatch.setattr(python_version.platform, "python_version", lambda: "the version of this one")
    with nullcontext() if allowed else pytest.raises(SystemExit) as refused:
        env.ensure()
    assert bool(installed) == env.home.exists() == allowed
    if refused:
        assert str(refused.value) == "Python 3.10 to 3.14 is needed; this is the version of this one."


@pytest.mark.parametrize("command", ["app.py", "tests/run.py"])
def test_both_commands_say_so_first(command):
    """Before they import what an old Python cannot read."""
    lines = f"""
        import platform, runpy, sys
        sys.version_info, platform.python_version = (3, 6), lambda: "3.6.15"
        sys.argv, sys.path[0] = ["{command}"], "."
        try:
            runpy.run_path("{command}", run_name="__main__")
        finally:
            assert "todo_lab.environment" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", dedent(lines)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "Python 3.10 to 3.14 is needed; this is 3.6.15.\n")


@pytest.mark.parametrize("name", ["app.py", "tests/run.py", "todo_lab/python_version.py"])
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


def files_of(env: Environment) -> list[Path]:
    """The requirements files of an environment."""
    return [Path(word) for words in env._installs for before, word in pairwise(words) if before == "-r"]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("env", [DEMO, TESTS], ids=["demo", "tests"])
def test_every_python_gets_every_package_once(env, python):
    """Some packages differ by Python. Those without a wheel for it are not asked for."""
    lines = [line.partition("#")[0].strip() for path in files_of(env) for line in path.read_text().splitlines()]
    known = [Requirement(line) for line in lines if line]
    asked = [one.name for one in known if not one.marker or one.marker.evaluate({"python_version": python})]
    assert len(set(asked)) == len(asked)
    missing = {one.name for one in known} - set(asked)
    assert missing == (WITHOUT[python] if env is TESTS else set())


def test_every_requirements_file_exists():
    for env in (DEMO, TESTS):
        assert len(files_of(env)) >= 2
        assert all(path.is_file() for path in files_of(env))
