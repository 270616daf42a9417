"""The commands of ``python -m todo_lab``: what each needs, and one line when it is missing."""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from unittest import mock

import pytest

from todo_lab.__main__ import COMMANDS, main

ROOT = Path(__file__).parents[2]
TORCH_ALONE = (
    "PIL diffusers einops gradio ldm matplotlib numpy omegaconf open_clip pandas pyarrow ray safetensors "
    "scipy skimage stlpips_pytorch tqdm transformers yaml"
)


@pytest.fixture
def without(monkeypatch, capsys):
    """The status of a command, and what it writes, where some packages are not installed."""

    def run(packages, *words):
        missing = packages.split()

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in missing:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
        with mock.patch.dict(sys.modules):  # in this process, for most of a new one's time are imports
            for name in [name for name in sys.modules if name.split(".")[0] in ("todo_lab", "ldm", *missing)]:
                del sys.modules[name]
            status = importlib.import_module("todo_lab.__main__").main(words)
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_its_docstring_names_it(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*name.split(), "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: python -m todo_lab {name}" in shown
    module, parser = importlib.import_module(COMMANDS[name][0]), argparse.ArgumentParser()
    assert re.search(rf"python -m todo_lab {name}\b", module.__doc__)
    assert module.__doc__.strip() in shown
    module.add_arguments(parser)
    assert all(option.help for option in parser._actions)


@pytest.mark.parametrize(
    ("missing", "words", "needed"),
    [
        (TORCH_ALONE, "evaluate {out}", "--group evaluation"),
        (TORCH_ALONE, "pocket check", "--group evaluation"),
        (TORCH_ALONE, "pocket export webui", "--group demo"),
        ("ray", "evaluate {out} --engine ray --limit 1", "--group evaluation --group ray"),
        ("ldm", "evaluate {out} --limit 1", "--no-deps stable-diffusion-sdkit==2.1.5"),
    ],
)
def test_a_missing_package_is_one_line_that_says_how_to_install_it(without, tmp_path, missing, words, needed):
    status, _, said = without(missing, *words.format(out=tmp_path / "out").split())
    *before, line = said.splitlines()
    assert status == 2
    assert line.endswith(f"pip install {needed}")
    assert not before or missing == "ray"
    assert missing == "ldm" or re.match(r"No module named '\w+'\. This command needs, with pip 25.1 or newer: ", line)


def test_export_runs_with_another_ldm_installed(without, tmp_path, monkeypatch):
    """A WebUI has an ldm of its own, and neither diffusers nor this project's other packages."""
    (tmp_path / "ldm").mkdir()
    (tmp_path / "ldm" / "__init__.py").write_text("raise RuntimeError('this is not the ldm of the pocket model')")
    (tmp_path / "models").mkdir()
    missing = "diffusers einops gradio matplotlib omegaconf open_clip pandas ray skimage tqdm yaml"
    monkeypatch.syspath_prepend(tmp_path)
    assert without(missing, "pocket", "export", str(tmp_path))[0] == 0
    written = tmp_path / "models" / "Stable-diffusion" / "pocket.yaml"
    assert json.loads(written.read_text("utf-8"))["model"]["params"]["parameterization"] == "v"


def test_a_folder_that_is_not_a_webui_is_one_line(tmp_path, capsys):
    assert main(["pocket", "export", str(tmp_path)]) == 2
    assert "it has no folder models" in capsys.readouterr().err


def test_ctrl_c_during_an_import_ends_the_program_at_once(tmp_path):
    """In an import of numpy a KeyboardInterrupt becomes an AttributeError."""
    lines = """
        import signal
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise AttributeError("module 'numpy' has no attribute 'multiply'")
    """
    (tmp_path / "slow_import.py").write_text(dedent(lines))
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # the tests may ignore it
    program += "from todo_lab.command_line import run_module; run_module('slow_import', '', None)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "Stopped.\n", "")
