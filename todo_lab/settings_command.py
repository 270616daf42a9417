"""Print what is generated from the settings' declaration: ``python -m todo_lab settings``. It needs torch alone."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import todo_core
from todo_core import SETTINGS, Settings
from todo_core.settings import BUILT_IN, PRESET_HELP, Setting

HEAD = """\
# Written by: python -m todo_lab settings --stub > todo_core/__init__.pyi
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

"""
FIRST_PARAMETERS = "    model: Any,\n    settings: Settings | None = None,\n    *,\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's option."""
    parser.add_argument("--stub", action="store_true", help="print todo_core/__init__.pyi instead of the table")


def run(options: argparse.Namespace) -> int:
    """Write the table of settings as Markdown, or the stub, to standard output."""
    sys.stdout.write(stub() if options.stub else table())
    return 0


def table() -> str:
    """A Markdown table: name, default, what is allowed, infotext key, label and help."""
    return _table("| name | default | allowed | infotext | in the panel |", map(_row, SETTINGS.values()))


def presets() -> str:
    """A Markdown table of the built-in presets."""
    return _table("| preset | what it does |", (f"| {name} | {does} |" for name, does in PRESET_HELP.items()))


def inputs(names: Iterable[str]) -> str:
    """A Markdown table of the inputs of ComfyUI's node *ToDo settings*."""
    settings = map(SETTINGS.__getitem__, names)
    return _table("| input | what it does |", (f"| {s.label} | {s.help}{_only_with(s)} |" for s in settings))


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows]) + "\n"


def _row(setting: Setting) -> str:
    default, allowed = f"`{setting.default!r}`", setting.allowed.replace("|", "\\|")
    panel = f"**{setting.label}.** {setting.help}"
    return f"| `{setting.name}` | {default} | {allowed} | `{setting.infotext_key}` | {panel}{_only_with(setting)} |"


def _only_with(setting: Setting) -> str:
    """Which methods use it, if it depends on the method alone and not on all."""
    users = [m for m in ("downsample", "similarity", "cluster") if setting.used(Settings(method=m, target="all"))]
    return "" if len(users) in (0, 3) else f" *Only {', '.join(users)}.*"


def stub() -> str:
    """What type checkers and editors read of todo_core: its __init__, where two signatures have every setting."""
    source = Path(todo_core.__file__).with_suffix(".py").read_text("utf-8").partition('"""\n\n')[2]
    names = re.sub("__version__ = .*", "__version__: str", source.replace("apply_patch, patched, ", "", 1))
    names = re.sub("\n\nif find_spec.*|.* import find_spec\n\n", "", names).replace("\n    from", "\nfrom")
    preset = f"    preset: {_text(Literal[tuple(BUILT_IN)])} | None = None,\n"
    settings = "".join(f"    {s.name}: {_text(s.type)} = {_text(s.default)},\n" for s in SETTINGS.values())
    parameters = f"{FIRST_PARAMETERS}{preset}{settings}"
    return (
        f"{HEAD}{names}\ndef apply_patch(\n{parameters}) -> Session: ...\n"
        f"@contextmanager\ndef patched(\n{parameters}) -> Iterator[Session]: ...\n"
    )


def _text(value: Any) -> str:
    """The source of a type or a default."""
    if isinstance(value, str):
        return json.dumps(value)
    if get_origin(value) is Literal:
        return f"Literal[{', '.join(map(_text, get_args(value)))}]"
    if types := get_args(value):
        return " | ".join(map(_text, types))
    return "None" if value is type(None) else getattr(value, "__name__", repr(value))
