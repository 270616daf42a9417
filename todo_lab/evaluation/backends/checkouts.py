"""Import a module from an unmodified checkout, and leave no trace of it in sys.modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

WEBUI_MODULES = (
    "modules",
    "modules.scripts",
    "modules.script_callbacks",
    "modules.shared",
    "modules.processing",
    "gradio",
)


def import_from(path: Path | None, name: str, *, beside: tuple[str, ...] = ()) -> ModuleType:
    """Import the module ``name`` from the folder ``path`` only, and remove it from sys.modules afterwards.

    Modules in ``beside``, which it imports by name, are removed too: peers use names such as "utils".
    """
    if path is None:
        return importlib.import_module(name)
    if not (path / f"{name}.py").is_file() and not (path / name).is_dir():
        raise FileNotFoundError(f"{path} has no module {name}")
    names = (name, *beside)
    hidden = {key: sys.modules.pop(key) for key in [*sys.modules] if key.split(".")[0] in names}
    sys.path.insert(0, str(path))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(path))
        for key in [key for key in sys.modules if key.split(".")[0] in names]:
            del sys.modules[key]
        sys.modules.update(hidden)


@contextmanager
def stubs(*names: str) -> Iterator[None]:
    """Put empty modules in place of those that a peer imports but its reduction does not need."""
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.modules.update({name: _stub(name) for name in names})
    for name in names:
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], child, sys.modules[name])
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(hidden)


def _stub(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
    module.__path__ = []
    attributes = SimpleNamespace(Script=object, AlwaysVisible=None, MultiControlNetModel=None)
    vars(module).update(vars(attributes), on_ui_settings=_ignore, on_before_ui=_ignore)
    return module


def _ignore(*_: Any, **__: Any) -> None:
    """A callback registration that does nothing."""
