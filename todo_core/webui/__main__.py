"""``python -m todo_core.webui``: print the template for translators, localizations/template.json.sample."""

from __future__ import annotations

import sys

from .panel.localization import template

if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(template())
