"""The rules of the house that imports and lengths can break, read from the sources themselves."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = sorted((ROOT / "todo_core").rglob("*.py"))
LAB = sorted((ROOT / "todo_lab").rglob("*.py"))
PACKAGES = CORE + LAB
SCRIPTS = sorted((ROOT / "scripts").rglob("*.py"))
APPS = [ROOT / "app.py"]
BEFORE_INSTALLING = [
    *APPS,
    *(ROOT / "todo_lab" / name for name in ("__init__.py", "environment.py", "python_version.py")),
]
FOLDERS = sorted({path.parent for path in PACKAGES + SCRIPTS + sorted((ROOT / "benchmarks").rglob("*.py"))})
# Beyond these sizes a file, a function or a folder is worth a look. Where one stops a plain change, raise it there.
MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_FILES = 400, 50, 12
HOST_ONLY = {"modules", "gradio"}
COMFYUI_ONLY = {"comfy", "server"}
SHARED_BY_HOSTS = {"host", "ldm_layers", "patcher_options", "__init__"}
PAGE = ROOT / "todo_lab" / "demo" / "page.py"
# both pages build the controls of the declared settings alike
CONTROLS = {"todo_core.webui.panel.controls.build", "todo_core.webui.panel.controls.control_value"}

# the rooms of each house, from the ground up
FLOORS = {
    "todo_core": [
        "errors image_difference samplers token_grid",
        "reduction prediction pacing",
        "settings hosts",
        "work",
        "patching",
        "estimate tomesd",
        "webui comfyui",
    ],
    "todo_core/comfyui": ["compat inputs", "sampling", "nodes"],
    "todo_core/webui": ["compat presets", "generation", "panel", "compare", "extension __main__"],
    "todo_lab": [
        "python_version",
        "environment",
        "command_line settings_command",
        "sampling",
        "pocket",
        "evaluation demo",
        "__main__",
    ],
    "todo_lab/evaluation": ["metrics variants", "prompts backends", "running", "report", "command"],
}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Absolute dotted names of all that a file imports, anywhere in it; ``from a import b`` gives ``a.b``."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def tops(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def calls(path: Path, name: str) -> list[int]:
    """Lines on which a function is called by its bare name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    return [node.lineno for node in found if node.func.id == name]


def within(path: Path, *folder: str) -> bool:
    return path.is_relative_to(ROOT.joinpath(*folder))


def test_the_sources_are_found():
    assert {
        "todo_core/patching/hooks/keys_hooks.py",
        "todo_core/hosts/ldm.py",
        "todo_core/reduction/downsampling.py",
    } <= set(map(named, CORE))


def test_relative_imports_are_read_as_absolute_ones():
    assert "todo_core.hosts.host.Host" in set(imports(ROOT / "todo_core/hosts/ldm.py"))
    assert "todo_core.reduction" in set(imports(ROOT / "todo_core/patching/methods.py"))
    assert "torch.nn.functional" in set(imports(ROOT / "todo_core/reduction/downsampling.py"))


@pytest.mark.parametrize("path", PACKAGES, ids=named)
def test_only_the_webui_package_imports_the_webui(path):
    if path == PAGE:
        assert {name for name in imports(path) if name.startswith("todo_core.webui")} <= CONTROLS
        assert "modules" not in tops(path)
    elif not within(path, "todo_core", "webui"):
        assert not tops(path) & HOST_ONLY
        assert not any(name.startswith("todo_core.webui") for name in imports(path))


@pytest.mark.parametrize("path", PACKAGES, ids=named)
def test_only_the_comfyui_package_imports_comfyui(path):
    if not within(path, "todo_core", "comfyui"):
        assert not tops(path) & COMFYUI_ONLY
        assert not any(name.startswith("todo_core.comfyui") for name in imports(path))


@pytest.mark.parametrize("path", BEFORE_INSTALLING, ids=named)
def test_what_runs_before_anything_is_installed_needs_python_alone(path):
    """Imports at the top of the file; those within functions come later."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    direct = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = [alias.name for n in direct if isinstance(n, ast.Import) for alias in n.names]
    modules += [node.module for node in direct if isinstance(node, ast.ImportFrom) and not node.level]
    assert {name.split(".")[0] for name in modules} <= {*sys.stdlib_module_names, "todo_lab"}


@pytest.mark.parametrize("path", [p for p in CORE if within(p, "todo_core", "reduction")], ids=named)
def test_reductions_import_torch_alone(path):
    foreign = tops(path) - set(sys.stdlib_module_names) - {"torch", "todo_core"}
    assert not foreign
    assert all(name.startswith("todo_core.reduction") for name in imports(path) if name.startswith("todo_core"))


@pytest.mark.parametrize("path", CORE + SCRIPTS, ids=named)
def test_the_product_does_not_import_the_laboratory(path):
    assert "todo_lab" not in tops(path)


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
    floor = {room: number for number, rooms in enumerate(FLOORS[house]) for room in rooms.split()}
    files = {path: path.relative_to(folder).with_suffix("").parts[0] for path in PACKAGES if within(path, house)}
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


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_folder_reads_like_a_table_of_contents(folder):
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= MOST_FILES


@pytest.mark.parametrize("host", ["ldm", "diffusers", "forge", "comfyui"])
def test_hosts_do_not_import_each_other_nor_the_library_they_adapt(host):
    found = set(imports(ROOT / f"todo_core/hosts/{host}.py"))
    others = {path.stem for path in (ROOT / "todo_core/hosts").glob("*.py")} - SHARED_BY_HOSTS - {host}
    assert not {name for name in found if name.startswith("todo_core.hosts.") and name.split(".")[2] in others}
    assert not {"ldm", "sgm", "diffusers", "backend", "ldm_patched", "comfy"} & {name.split(".")[0] for name in found}


@pytest.mark.parametrize("path", PACKAGES + SCRIPTS + APPS, ids=named)
def test_no_file_is_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", PACKAGES + SCRIPTS + APPS, ids=named)
def test_no_function_is_long(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, functions)]
    assert not {node.name for node in found if node.end_lineno - node.lineno >= MOST_LINES_OF_A_FUNCTION}


@pytest.mark.parametrize("path", PACKAGES, ids=named)
def test_nothing_is_printed(path):
    assert not calls(path, "print")


@pytest.mark.parametrize("path", PACKAGES + SCRIPTS + APPS, ids=named)
def test_no_exception_is_caught_unnamed(path):
    handlers = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ExceptHandler)]
    assert not [handler.lineno for handler in handlers if handler.type is None]
