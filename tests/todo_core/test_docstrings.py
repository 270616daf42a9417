"""The examples in docstrings. They may use a small UNet of SD 1.5's layout, and what it takes."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import todo_core
from tests.models import ldm_unet, noise, words

CORE = Path(todo_core.__file__).parent
FILES = [path for path in sorted(CORE.rglob("*.py")) if ">>> " in path.read_text("utf-8")]


def named(path):
    return ".".join(path.relative_to(CORE.parent).with_suffix("").parts)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_examples_are_true(path):
    given = {"unet": ldm_unet(image_size=64), "latent": noise(1, 4, 8, 8), "timestep": torch.ones(1), "text": words(1)}
    result = doctest.testmod(importlib.import_module(named(path)), extraglobs=given)
    assert result == (0, path.read_text("utf-8").count(">>> "))
