"""The documentation says what the code does, in few and plain words."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

from todo_core import SETTINGS
from todo_core.settings import table
from todo_lab.__main__ import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PICTURES = sorted(p for p in (ROOT / "docs").glob("**/*") if p.suffix in (".png", ".webp"))
MOST_WORDS = 9000
MOST_README_LINES = 130
# Words that readers have to decode, each with the field's own term.
PLAIN = {
    "unreduced": "baseline",
    "the host": "the WebUI",
    "for want of": "not measured: no ...",
    "at hand": "available",
    "whole attention": "full attention",
    "left whole": "not reduced",
    "leaves whole": "skips",
    "ready-made": "lower bound: the same number of keys, at no cost",
    "that cannot be": "invalid",
    "comes out otherwise": "will differ",
    "come out unreduced": "are made without ToDo",
    "`share`": "removed; only the research notes name it",
}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """What is written by hand: the table of settings has tests of its own."""
    return page.read_text("utf-8").removesuffix(table.markdown())


def prose(page: Path) -> str:
    """The text in one line, so that a phrase is found across a line break; without code blocks."""
    return " ".join(without_code(text_of(page)).split()).lower()


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_table_of_settings_is_the_declared_one(capsys):
    assert main(["settings"]) == 0
    printed = capsys.readouterr().out
    assert printed == table.markdown()
    assert (ROOT / "docs" / "settings.md").read_text("utf-8").endswith(printed)


def test_the_table_tells_every_setting():
    rows = table.markdown().splitlines()[2:]
    for row, (name, setting) in zip(rows, SETTINGS.items(), strict=True):
        for told in (f"`{name}`", setting.label, setting.help, setting.allowed, f"`{setting.default!r}`"):
            assert told in row


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        to = page.parent / target if target else page
        assert to.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(to), f"{page.name} links to {target}#{anchor}"


def test_a_link_to_a_heading_needs_that_heading():
    assert "what-psnr-is-good" in anchors(ROOT / "docs" / "results" / "README.md")
    assert "torchcompile" in anchors(ROOT / "docs" / "python.md")


def test_every_picture_is_shown_or_linked_by_a_page():
    linked = {(page.parent / target).resolve() for page in PAGES for target in _targets(page)}
    assert [named(picture) for picture in PICTURES if picture not in linked] == []


def _targets(page: Path) -> list[str]:
    return re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8"))


def test_the_pages_are_short():
    """Counted as ``wc -w`` does, generated tables included."""
    words = {named(page): len(page.read_text("utf-8").split()) for page in PAGES}
    assert sum(words.values()) <= MOST_WORDS, words


def test_the_readme_fits_on_a_few_screens():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= MOST_README_LINES


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_use_the_terms_of_the_field(page):
    text = prose(page)
    allowed = {"`share`"} if page.parent.name == "research" else set()
    found = {phrase: word for phrase, word in PLAIN.items() if phrase not in allowed and phrase in text}
    assert not found, f"{page.name}: say {found}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=named)
def test_a_page_begins_with_what_it_is_for(page):
    title, first = [block for block in page.read_text("utf-8").split("\n\n") if block][:2]
    assert title.startswith("# ")
    assert first.startswith("This page ")
    assert "\n## Limits\n" in page.read_text("utf-8") or page.name == "settings.md"


# The figures of the tables, by the stored rows ------------------------------------------------------------------------

VARIANTS = {  # a row's name in the pages -> its name in docs/benchmarks/unet.json, and in docs/results
    "ToDo, factor 2": ("ToDo 2", "ToDo 2"),
    "ToDo, factor 4": ("ToDo 4", "ToDo 4"),
    "ToMe, ratio 0.5": ("ToMe 0.5", "ToMe paper"),
    "tomesd, ratio 0.5": ("tomesd 0.5", "tomesd 0.5"),
    "sd-webui-token-downsampling, factor 2": ("token-downsampling 2", "token-downsampling 2"),
    "HyperTile": ("HyperTile 256", "hypertile 128"),
}


def rows_of(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head and without bold."""
    lines = page.read_text("utf-8").split(f"\n## {heading}\n")[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table_lines = itertools.takewhile(lambda line: line.startswith("|"), lines[first + 2 :])
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table_lines]


@functools.cache
def stored(part: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / "docs" / "benchmarks" / "unet.json").read_text("utf-8"))[part]


@functools.cache
def unet_calls(layout: str = "sd1-ldm", batch: int = 1) -> dict[tuple[str, int], dict[str, Any]]:
    rows = [row for row in stored("rows") if (row["layout"], row["batch"]) == (layout, batch) and "speed" in row]
    return {(row["setting"], row["latent"]): row for row in rows}


@functools.cache
def results() -> dict[tuple[str, float], tuple[float, float]]:
    """(median speed of the hires pass, PSNR of the mean MSE) by variant and scale."""
    rows = pandas.read_parquet(
        ROOT / "docs" / "results" / "results.parquet", columns=["variant", "hires_scale", "speed", "mse"]
    )
    groups = rows[rows["mse"] > 0].groupby(["variant", "hires_scale"])
    return {key: (part["speed"].median(), -10 * math.log10(part["mse"].mean())) for key, part in groups}


def test_the_readmes_table_is_that_of_the_stored_rows():
    rows = rows_of(ROOT / "README.md", "Speed and difference")
    assert {row[0] for row in rows} == set(VARIANTS)
    for name, *cells in rows:
        call, image = VARIANTS[name]
        speeds = [f"{unet_calls()[call, latent]['speed']:.2f}x" for latent in (128, 256)]
        assert cells == [*speeds, *(f"{results()[image, scale][1]:.1f} dB" for scale in (2.0, 3.0))], name


def test_the_table_of_results_is_that_of_the_stored_rows():
    names = {
        "ToDo 2, fixed": "Reference demo 1024",
        "ToDo 4, fixed": "Reference demo 2048",
        "ToDo 2, area": "ToDo 2 area",
        "ToMe 0.5 (ToMe paper)": "ToMe paper",
        "ToMe 0.75": "ToMe 75%",
        "cluster 0.5": "cluster 50%",
        "HyperTile 128": "hypertile 128",
    }
    for name, *cells in rows_of(ROOT / "docs" / "results" / "README.md", "Table"):
        measured = [results()[names.get(name, name), scale] for scale in (2.0, 3.0)]
        assert cells == [text for speed, psnr in measured for text in (f"{speed:.2f}x", f"{psnr:.1f}")], name


def test_the_table_of_unet_calls_is_that_of_the_stored_rows():
    names = {
        "ToMe 0.5, reach 1": "ToMe 0.5 reach 1",
        "sd-webui-token-downsampling 2": "token-downsampling 2",
        "lower bound of ToDo 4": "lower bound of ToDo 4",
    }
    latents = (64, 96, 128, 192, 256)
    baseline = [unet_calls()["baseline", latent] for latent in latents]
    seconds, share, *rows = rows_of(ROOT / "docs" / "performance.md", "One UNet call")
    assert seconds[1:] == [seconds_text(row) for row in baseline]
    assert share[1:] == [f"{row['attention'] / row['seconds']:.0%}".replace("%", " %") for row in baseline]
    for name, *cells in rows:
        found = [unet_calls().get((names.get(name, name), latent)) for latent in latents]
        assert cells == ["" if row is None else f"{row['speed']:.2f}x" for row in found], name


def seconds_text(row: dict[str, Any]) -> str:
    return f"{row['seconds']:.{0 if row['seconds'] >= 100 else 1}f} s"


def test_the_table_of_other_models_is_that_of_the_stored_rows():
    groups = {
        "SD 1.5 in diffusers, 768 px": ("sd1", 1, 96),
        "SD 1.5, the WebUI's InvokeAI attention, 768 px": ("sd1-ldm and the WebUI's InvokeAI", 1, 96),
        "SD 1.5, batch 2, 512 px": ("sd1-ldm", 2, 64),
        "ControlNet of SD 1.5 in diffusers, 768 px": ("sd1-controlnet", 1, 96),
        "SDXL in diffusers, 1024 px": ("sdxl", 1, 128),
    }
    rows = rows_of(ROOT / "docs" / "performance.md", "Other models")
    assert {name for name, *_ in rows} == set(groups)
    for name, seconds, speed, others in rows:
        layout, batch, latent = groups[name]
        calls = unet_calls(layout, batch)
        assert seconds == seconds_text(calls["baseline", latent])
        for other, figure in [("ToDo 2", speed), *(text.split(": ") for text in others.split(", ") if text)]:
            assert figure == f"{calls[other, latent]['speed']:.2f}x", (name, other)


def test_the_table_of_reductions_is_that_of_the_stored_rows():
    found = {(row["reduction"], row["latent"]): row for row in stored("reductions")}
    for name, *cells in rows_of(ROOT / "docs" / "performance.md", "Cost of the reductions"):
        small, large = (found[name.replace(",", ""), latent] for latent in (64, 128))
        values = [small["find"], large["find"], large["merge"], large.get("unmerge")]
        assert cells == ["" if value is None else plain_number(value) for value in values], name


def plain_number(value: float) -> str:
    """Whole from 2 on, else one digit; a hundredth and less is 0."""
    return "0" if value < 0.05 else f"{value:.{0 if value >= 2 else 1}f}"


@pytest.mark.parametrize("heading", ["In short", "Questions"])
def test_speeds_and_decibels_in_the_text_of_the_results_are_those_of_stored_rows(heading):
    text = (ROOT / "docs" / "results" / "README.md").read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    known = {f"{speed:.2f}x" for speed, _ in results().values()} | {f"{psnr:.1f}" for _, psnr in results().values()}
    figures = re.findall(r"\b\d+\.\d\dx|\b\d\d\.\d\b", text)
    assert figures
    assert set(figures) <= known


def test_what_a_psnr_means_follows_from_its_definition():
    for decibels, error, _ in rows_of(ROOT / "docs" / "results" / "README.md", "What PSNR is good?"):
        assert error == f"{255 * 10 ** (-float(decibels.removesuffix(' dB')) / 20):.0f} of 255"
