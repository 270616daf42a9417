"""Import the modules of a peer's own checkout, and leave no trace of them in sys.modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def import_from(
    path: Path | None, name: str, *, beside: tuple[str, ...] = (), stubs: tuple[str, ...] = ()
) -> ModuleType:
    """Import the module ``name`` from the folder ``path`` only, and remove it from sys.modules afterwards.

    Modules in ``beside``, which it imports by name, are removed too: peers use names such as "utils". Empty modules
    stand in for ``stubs``, which a peer imports but its reduction does not need.
    """
    if path is None:
        return importlib.import_module(name)
    if not (path / f"{name}.py").is_file() and not (path / name).is_dir():
        raise FileNotFoundError(f"{path} has no module {name}")
    names = (name, *beside, *stubs)
    hidden = {key: sys.modules.pop(key) for key in _loaded(names)}
    sys.modules.update({stub: _stub(stub) for stub in stubs})
    sys.path.insert(0, str(path))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(path))
        for key in _loaded(names):
            del sys.modules[key]
        sys.modules.update(hidden)


def _loaded(names: tuple[str, ...]) -> list[str]:
    """The loaded modules of the packages of these names."""
    packages = {name.split(".")[0] for name in names}
    return [key for key in sys.modules if key.split(".")[0] in packages]


def _stub(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
    callbacks = dict.fromkeys(("on_ui_settings", "on_before_ui"), lambda callback: None)
    vars(module).update(__path__=[], Script=object, AlwaysVisible=None, **callbacks)
    return module
