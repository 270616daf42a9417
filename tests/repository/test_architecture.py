"""The rules of the house that imports and lengths can break, read from the sources; ruff has the others."""

import ast
import functools
import sys
from pathlib import Path

import pytest

from tests import lines

ROOT = Path(__file__).parents[2]
CORE, LAB, SCRIPTS = (sorted((ROOT / folder).rglob("*.py")) for folder in ("todo_core", "todo_lab", "scripts"))
PACKAGES = CORE + LAB
PAGE = "todo_lab/demo/page.py"
# what is imported -> the folders and files that alone may
ONLY = {
    "modules": ("todo_core/webui", "scripts"),
    "gradio": ("todo_core/webui", PAGE),
    "todo_core.webui": ("todo_core/webui", "scripts"),
    **dict.fromkeys(("comfy", "server", "todo_core.comfyui"), ("todo_core/comfyui",)),
    **dict.fromkeys(("ldm", "sgm", "diffusers", "backend", "ldm_patched", "todo_lab"), ("todo_lab",)),
}
# both pages build the controls of the declared settings alike
CONTROLS = {"todo_core.webui.panel.controls.build", "todo_core.webui.panel.controls.control_value"}

# the rooms of each house, from the ground up
FLOORS = {
    "todo_core": "errors image_difference reason token_grid / course / samplers / reduction / settings hosts / patching"
    " / tomesd / webui comfyui",
    "todo_core/hosts": "host stack / ldm_layers conditions compiled_code schedulers / ldm diffusers patchers",
    "todo_core/patching": "facts steps space / time work / plan record / estimate / planning / what_ran hooks / guard"
    " / session / driver patch",
    "todo_core/comfyui": "compat inputs asked / sampling / nodes",
    "todo_core/webui": "compat presets / generation / panel / compare / extension",
    "todo_lab": "python_version / environment / command_line / sampling / pocket / evaluation demo / __main__",
    "todo_lab/evaluation": "metrics variants / prompts backends / running / report / command",
}


def named(path):
    return path.relative_to(ROOT).as_posix()


@functools.cache
def nodes(path):
    """The whole syntax tree of a file."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


@functools.cache
def imports(path):
    """Absolute dotted names of all that a file imports, anywhere in it; ``from a import b`` gives ``a.b``."""
    package, found = path.relative_to(ROOT).with_suffix("").parts[:-1], set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def is_below(name, room, dot="."):
    return f"{name}{dot}".startswith(f"{room}{dot}")


@pytest.mark.parametrize("what", ONLY)
def test_only_these_import_it(what):
    """The libraries of a model or program, its own package, and the laboratory."""
    found = {(named(path), name) for path in PACKAGES + SCRIPTS for name in imports(path) if is_below(name, what)}
    found -= {(PAGE, name) for name in CONTROLS}
    assert not [pair for pair in found if not any(is_below(pair[0], room, "/") for room in ONLY[what])]


def test_reductions_import_torch_alone():
    found = {name for path in CORE if path.parent.name == "reduction" for name in imports(path)}
    assert {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) == {"torch", "todo_core"}
    assert all(name.startswith("todo_core.reduction") for name in found if name.startswith("todo_core"))


def test_no_two_files_import_each_other():
    """Not even for types; a package's __init__ counts as a file."""
    files = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in PACKAGES}

    def taken(path):
        for name in imports(path):
            while name and name not in files:
                name = name.rpartition(".")[0]
            if name and files[name] != path:
                yield name

    arrows = {name: set(taken(path)) for name, path in files.items()}
    assert not {(a, b) for a, found in arrows.items() for b in found if a in arrows[b] and a < b}


@pytest.mark.parametrize("house", FLOORS)
def test_no_import_runs_up_a_floor(house):
    """Nor from one room to another on the same floor."""
    folder = ROOT / house
    floor = {room: number for number, rooms in enumerate(FLOORS[house].split("/")) for room in rooms.split()}
    files = {
        path: path.relative_to(folder).with_suffix("").parts[0] for path in PACKAGES if path.is_relative_to(folder)
    }
    del files[folder / "__init__.py"]
    assert set(files.values()) == set(floor), "each room has a floor"
    prefix = house.replace("/", ".") + "."
    taken = {(path, name) for path in files for name in imports(path) if name.startswith(prefix)}
    arrows = {(path, name.removeprefix(prefix).split(".")[0]) for path, name in taken}
    assert not [
        f"{named(path)} imports {room}"
        for path, room in arrows
        if room in floor and room != files[path] and floor[room] >= floor[files[path]]
    ]


def test_no_room_has_more_tokens_than_it_may():
    found = lines.totals()
    assert not {room: n for room, n in found.items() if n > lines.MOST[room]}, lines.__doc__
