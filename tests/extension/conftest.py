"""The extension's own files on a double of the host."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent / "double"), str(Path(__file__).parent)]


def load_script(name="todo"):
    """Load scripts/NAME.py as the host does: by path, as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"{name}.py", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(tmp_path):
    """scripts/todo.py, freshly loaded, with a data folder of its own."""
    from modules import script_callbacks, scripts

    for callbacks in (c for name, c in vars(script_callbacks).items() if name.startswith("callbacks_")):
        callbacks.clear()
    scripts.folder = tmp_path
    return load_script()


@pytest.fixture(autouse=True)
def opts():
    """The host's options, as after its start with this extension; each test has its own."""
    from modules import shared

    from todo_core.webui import options

    shared.opts.reset()
    shared.state.begin()
    options.register(lambda: ["ToDo balanced", "ToMe paper"])
    return shared.opts


@pytest.fixture
def script(module):
    return module.ToDoScript()
