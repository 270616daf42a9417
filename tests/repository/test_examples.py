"""Every example runs as it stands and says what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(folder: Path, name: str, *arguments: str) -> str:
    """Run an example in a folder and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_diffusers_hires(tmp_path):
    printed = run(tmp_path, "diffusers_hires.py", "--tiny")
    assert "level 1: 32 x 32, 1,024 tokens -> 256 by downsample" in printed
    assert Image.open(tmp_path / "hires.png").size == (256, 256)


def test_ldm_model(tmp_path):
    printed = run(tmp_path, "ldm_model.py")
    assert "level 1: 64 x 64, 4,096 tokens -> 1,024 by downsample" in printed
    assert "level 2: 32 x 32, 1,024 tokens -> 256 by downsample" in printed
    assert "relative difference: 0.0%" not in printed
    assert "equal again after the block: True" in printed


def test_from_tomesd(tmp_path):
    printed = run(tmp_path, "from_tomesd.py")
    assert "the same result as tomesd: True" in printed
    assert "level 1: 64 x 64, 4,096 tokens -> 1,024 by downsample" in printed
    assert "ToDo: relative difference 0.0%" not in printed


def test_every_example_is_tested_and_listed():
    files = {path.name for path in EXAMPLES.glob("*.py")}
    tested = {name.removeprefix("test_") + ".py" for name in globals() if name.startswith("test_")}
    assert files <= tested
    assert all(f"`{name}`" in (EXAMPLES / "README.md").read_text() for name in files)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) < 60
