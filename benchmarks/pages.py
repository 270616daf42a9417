"""Write all that is generated from code and stored rows into the files that have it: python benchmarks/pages.py

The tables of settings and presets, the stub for editors, and the tables of README.md, docs/performance.md and
docs/results. A table takes the place of the next one whose head has the same first cell.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this checkout, whichever one the environment has
try:
    import performance
    import results

    from todo_core.comfyui.inputs import REST
    from todo_lab.evaluation.report.document import markdown_table
    from todo_lab.settings_command import inputs, presets, stub, table
except ModuleNotFoundError as error:
    raise SystemExit(f"{error.name} is missing. Use .venv-test/bin/python; python3 tests/run.py makes it.") from None

ROOT = Path(__file__).resolve().parents[1]


def replaced(page: str, tables: Iterable[str]) -> str:
    """The page with each table in the place of the next one that has the first cell of its head."""
    end = 0
    for new in tables:
        head = f"\n{new[: new.index('|', 1) + 1]}"
        if head not in page[end:]:
            raise SystemExit(f"the page has no table with the head {head}")
        start = page.index(head, end) + 1
        old = re.match(r"(?:\|.*\n)+", page[start:])[0]  # type: ignore[index]
        page, end = f"{page[:start]}{new.rstrip()}\n{page[start + len(old) :]}", start + len(new)
    return page


GENERATED: dict[str, Callable[[str], str]] = {
    "todo_core/__init__.pyi": lambda page: stub(),
    "docs/webui.md": lambda page: replaced(page, [presets()]),
    "todo_core/comfyui/web/docs/ToDo.md": lambda page: replaced(page, [presets()]),
    "todo_core/comfyui/web/docs/ToDoSettings.md": lambda page: replaced(page, [inputs(REST)]),
    "docs/settings.md": lambda page: replaced(page, [table()]),
    "docs/performance.md": lambda page: replaced(page, [markdown_table(t()) for t in performance.TABLES.values()]),
    "docs/results/README.md": lambda page: replaced(page, [markdown_table(t()) for t in results.TABLES.values()]),
    "README.md": lambda page: replaced(page, [markdown_table(t()) for t in (results.of_aims, results.of_balanced)]),
}


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
