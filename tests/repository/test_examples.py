"""Every example runs as it stands and says what it should."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.todo_lab.saved_pipelines import save_sd1, save_sdxl

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs an example in an empty folder and returns what it prints. In this process: imports take most of the time."""

    def run(name, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("kind", ["sd1", "sdxl"])
def test_diffusers_hires(run, tmp_path, kind):
    printed = run("diffusers_hires.py", "--tiny", kind)
    assert re.search(r"<Record: .+ in \d+ steps[;>]", printed)
    assert Image.open(tmp_path / "hires.png").size == (256, 256)


@pytest.mark.parametrize(("save", "side"), [(save_sd1, 64), (save_sdxl, 128)])
def test_readmes_hires_fix_acts_for_both_families(save, side, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line]) <= 12
    model, names = re.search(r'from_pretrained\("(.+)"\)', code).group(1), {}
    code = code.replace(model, str(save(tmp_path / "model", side=side))).replace("=40", "=8")
    exec(code.replace("output_type", "num_inference_steps=4, output_type"), names)
    assert names["image"].size == (2 * side, 2 * side)
    assert names["session"].record.acted
    few = "whole steps need 6 or more steps, and the sampler makes 4"
    assert names["session"].record.notes == [f"no whole step predicted: {few}"]


def test_ldm_model(run):
    printed = run("ldm_model.py")
    assert "level 1: 64 x 64, 4,096 tokens -> 1,024 by downsample" in printed
    assert "level 2: 32 x 32, 1,024 tokens -> 256 by downsample" in printed
    assert "relative difference: 0.0%" not in printed
    assert "equal again after the block: True" in printed


def test_from_tomesd(run):
    printed = run("from_tomesd.py")
    assert "the same result as tomesd: True" in printed
    assert "level 1: 64 x 64, 4,096 tokens -> 1,024 by downsample" in printed
    assert "ToDo: relative difference 0.0%" not in printed


def test_every_example_is_tested_and_listed():
    files = {path.name for path in EXAMPLES.glob("*.py")}
    tested = {name.removeprefix("test_") + ".py" for name in globals() if name.startswith("test_")}
    assert files <= tested
    assert all(f"`{name}`" in (EXAMPLES / "README.md").read_text() for name in files)
