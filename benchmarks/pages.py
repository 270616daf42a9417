"""Write all that is generated from code and stored rows into the files that have it: python benchmarks/pages.py

The tables of settings and presets, the stub for editors, and the tables of README.md, docs/performance.md and
docs/results. A table takes the place of the next one whose head has the same first cell.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # this checkout, whichever one the environment has
try:
    import performance
    import results
    from performance import Table

    from todo_core import SETTINGS, Settings
    from todo_core.comfyui.inputs import REST
    from todo_core.settings import BUILT_IN, PRESET_HELP, Setting
    from todo_core.settings.declaration import METHODS
    from todo_lab.evaluation.report.document import markdown_table
except ModuleNotFoundError as error:
    raise SystemExit(f"{error.name} is missing. Use .venv-test/bin/python; python3 tests/run.py makes it.") from None

STUB_HEAD = """\
# Written by: python benchmarks/pages.py
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

"""
FIRST_PARAMETERS = "    model: Any,\n    settings: Settings | None = None,\n    *,\n"


def settings() -> Table:
    """Each setting: name, default, what is allowed, infotext key, label and help."""
    rows = [
        [f"`{s.name}`", f"`{s.default!r}`", s.allowed, f"`{s.infotext_key}`", f"**{s.label}.** {help_of(s)}"]
        for s in SETTINGS.values()
    ]
    return [["name", "default", "allowed", "infotext", "in the panel"], *rows]


def inputs() -> Table:
    """The inputs of ComfyUI's node *ToDo settings*."""
    return [["input", "what it does"], *([SETTINGS[name].label, help_of(SETTINGS[name])] for name in REST)]


def presets() -> Table:
    """The built-in presets."""
    return [["preset", "what it does"], *map(list, PRESET_HELP.items())]


def help_of(setting: Setting) -> str:
    """The help, and which methods use the setting, if it depends on the method alone and not on all."""
    users = [method for method in METHODS if setting.used(Settings(method=method, target="all"))]
    return setting.help + ("" if len(users) in (0, len(METHODS)) else f" *Only {', '.join(users)}.*")


def stub(_: str) -> str:
    """What type checkers and editors read of todo_core: its __init__, where two signatures have every setting."""
    source = (ROOT / "todo_core" / "__init__.py").read_text("utf-8").partition('"""\n\n')[2]
    names = re.sub("__version__ = .*", "__version__: str", source.replace("apply_patch, patched, ", "", 1))
    names = re.sub("\n\nif find_spec.*|.* import find_spec\n\n", "", names).replace("\n    from", "\nfrom")
    preset = f"    preset: {source_of(Literal[tuple(BUILT_IN)])} | None = None,\n"
    declared = "".join(f"    {s.name}: {source_of(s.type)} = {source_of(s.default)},\n" for s in SETTINGS.values())
    parameters = f"{FIRST_PARAMETERS}{preset}{declared}"
    return (
        f"{STUB_HEAD}{names}\ndef apply_patch(\n{parameters}) -> Session: ...\n"
        f"@contextmanager\ndef patched(\n{parameters}) -> Iterator[Session]: ...\n"
    )


def source_of(value: Any) -> str:
    """The source of a type or a default."""
    if isinstance(value, str):
        return json.dumps(value)
    if get_origin(value) is Literal:
        return f"Literal[{', '.join(map(source_of, get_args(value)))}]"
    if types := get_args(value):
        return " | ".join(map(source_of, types))
    return "None" if value is type(None) else getattr(value, "__name__", repr(value))


def replaced(page: str, tables: Iterable[Callable[[], Table]]) -> str:
    """The page with each table in the place of the next one that has the first cell of its head."""
    end = 0
    for new in (markdown_table(table()) for table in tables):
        head = f"\n{new[: new.index('|', 1) + 1]}"
        if head not in page[end:]:
            raise SystemExit(f"the page has no table with the head {head}")
        start = page.index(head, end) + 1
        old = re.match(r"(?:\|.*\n)+", page[start:])[0]
        page, end = f"{page[:start]}{new}\n{page[start + len(old) :]}", start + len(new)
    return page


TABLES: dict[str, Iterable[Callable[[], Table]]] = {
    "docs/webui.md": [presets],
    "todo_core/comfyui/web/docs/ToDo.md": [presets],
    "todo_core/comfyui/web/docs/ToDoSettings.md": [inputs],
    "docs/settings.md": [settings],
    "docs/performance.md": performance.TABLES,
    "docs/results/README.md": results.TABLES,
    "README.md": [results.of_aims, results.of_balanced],
}
GENERATED = {name: partial(replaced, tables=tables) for name, tables in TABLES.items()}
GENERATED |= {"todo_core/__init__.pyi": stub}


def main() -> None:
    """Write the files that have changed, and name them."""
    changed = []
    for name, generated in GENERATED.items():
        path = ROOT / name
        before = path.read_text("utf-8")
        if (after := generated(before)) != before:
            path.write_text(after, "utf-8")
            changed.append(name)
    sys.stdout.write(f"changed: {', '.join(changed)}\n" if changed else "nothing changed\n")


if __name__ == "__main__":
    main()
