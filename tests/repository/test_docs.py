"""The documentation says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from todo_core import SETTINGS
from todo_core.settings import table
from todo_lab.__main__ import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def test_the_table_of_settings_is_the_declared_one(capsys):
    assert main(["settings"]) == 0
    printed = capsys.readouterr().out
    assert printed == table.markdown()
    assert (ROOT / "docs" / "settings.md").read_text().endswith(printed)


def test_the_table_tells_every_setting():
    rows = table.markdown().splitlines()[2:]
    for row, (name, setting) in zip(rows, SETTINGS.items(), strict=True):
        for told in (f"`{name}`", setting.label, setting.help, setting.allowed, f"`{setting.default!r}`"):
            assert told in row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
