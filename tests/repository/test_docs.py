"""The documentation says what the code does, and its links and pictures are there."""

import json
import re
from pathlib import Path

import pytest

from tests.repository.test_architecture import named
from todo_core import SETTINGS, Settings, __version__
from todo_core.settings import BUILT_IN

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PICTURES = sorted(p for p in (ROOT / "docs").glob("**/*") if p.suffix in (".png", ".webp"))


def anchors(page):
    """The headings of a page, as links name them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_setting_has_a_recommended_value():
    advice = (ROOT / "docs" / "settings.md").read_text("utf-8").partition("| name | default |")[0]
    assert [name for name in SETTINGS if not re.search(rf"(\*\*|`){name}(\*\*|`)", advice)] == []


def test_the_api_page_shows_the_infotext_of_its_request():
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    sent = json.loads(re.search(r'"args": \[(.*?)\]', text)[1])
    infotext = dict(pair.split(": ") for pair in re.search(r"# has: (.*), \.\.\.", text)[1].split(", "))
    wanted = BUILT_IN[sent.pop("preset")].to_dict() | sent
    shown = Settings.from_infotext(infotext | {"ToDo version": __version__}).to_dict()
    names = [name for name, setting in SETTINGS.items() if setting.infotext_key in infotext]
    assert {name: shown[name] for name in names} == {name: wanted[name] for name in names}


def test_contributing_names_files_and_constants_that_are_there():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    paths = re.findall(r"`((?:todo_core|todo_lab|tests|docs|scripts|examples|benchmarks)/[^`]*)`", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for name, path in re.findall(r"`([A-Z_]+)` in `([\w./]+)`", page):
        assert re.search(rf"^{name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE), f"{name} is not in {path}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        to = page.parent / target if target else page
        assert to.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(to), f"{page.name} links to {target}#{anchor}"


def test_the_pictures_show_this_version_and_its_presets():
    recipes = json.loads((ROOT / "docs" / "images" / "recipes.json").read_text("utf-8"))
    assert [*recipes] == [picture.name for picture in PICTURES if picture.parent.name == "images"]
    for name, recipe in recipes.items():
        assert f"{recipe.get('version', __version__)}." in f"{__version__}.", name
        assert set(recipe.get("presets", ())) <= set(BUILT_IN), name
