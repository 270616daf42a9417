"""What is generated is what is committed, and the figures in the text are those of the stored rows."""

import re
import sys
from pathlib import Path

import pytest

from todo_core import TokenGrid
from todo_core.patching.work import layout_of
from todo_lab.evaluation.variants import from_grid

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import pages  # noqa: E402
from pages import results  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "README.md"


@pytest.mark.parametrize("name", pages.GENERATED)
def test_what_is_generated_is_what_is_committed(name):
    committed = (ROOT / name).read_text("utf-8")
    assert pages.GENERATED[name](committed) == committed, "run: python benchmarks/pages.py"


# docs/results -------------------------------------------------------------------------------------------------------


def test_decibels_in_the_text_of_the_results_are_those_of_a_table():
    page = RESULTS.read_text("utf-8")
    part = page.split("\n## Each way at the base\n")[1].split("\n## ToDo's own protocol")[0]
    figure = re.compile(r"\b\d\d\.\d\b")
    known = {found for line in page.splitlines() if line[:1] == "|" for found in figure.findall(line)}
    figures = figure.findall(part)
    assert figures
    assert set(figures) <= known


def test_the_sentence_on_the_number_of_tokens_is_that_of_the_rows():
    told = []
    for layout, plain in results.AS_MANY.items():
        own, other = (results.of_grids(layout, variant) for variant in ("ToDo 2", plain))
        told += [f"{abs(results.psnr(own[side]) - results.psnr(other[side])):.1f}" for side in own]
    begins = f"With the same {len(own[64])} prompts on each grid"
    text = RESULTS.read_text("utf-8").replace("SD 1.5", "").partition(begins)[2]
    assert re.findall(r"\b\d\.\d\b", text)[: len(told)] == told


def test_the_grid_of_the_users_makes_the_variants_of_the_rows():
    grids = [RESULTS.parent / f"grid-{name}.yaml" for name in ("users", "256", "384", "512")]
    made = {variant.name for grid in grids for variant in from_grid(grid)}
    gone = {"CA-ToMe 0.7", "FBCache 0.4", "Spectrum 2 0"}  # measured with earlier adapters
    assert set(results.ROWS["variant"]) - gone <= made | {"baseline"}
    assert not gone & made


def test_todo_is_closer_than_other_programs_at_no_more_work_where_the_page_says_so():
    """In the mean and in the worst image, with as many tokens as hires passes have."""
    for (_, side, _), part in results.beside_programs("").items():
        ours = results.of("ToDo 2", part)
        for other in (results.of(name, part) for name in results.PROGRAMS if side in results.REAL):
            assert ours["work"].mean() <= other["work"].mean()
            assert results.psnr(ours) > results.psnr(other)
            assert ours["psnr"].min() > other["psnr"].min()


@pytest.mark.parametrize(("aim", "names"), [("Balanced", ("", *results.EULER)), ("Fast", results.EULER)])
def test_a_preset_is_closer_than_each_other_program_that_saves_work(aim, names):
    """In the mean and in the worst image."""
    for which, part in results.beside_programs(*names).items():
        ours = results.rows_of(aim, which, part)
        for other in (results.of(name, part) for name in (*results.PROGRAMS, *results.CACHES)):
            if other["work"].mean() < 0.99:
                assert results.psnr(ours) > results.psnr(other)
                assert ours["psnr"].min() > other["psnr"].min()


@pytest.mark.parametrize("aim", results.TOLERANCES)
def test_no_preset_is_farther_than_as_many_plain_steps(aim):
    """Neither in the mean nor in the worst image."""
    for layout, side, name, part in results.passes():
        variant = results.variant_of(aim, layout, side, name)
        if len(own := results.of(variant, part)):
            _, _, plain = results.beside_plain_steps(layout, side, variant, part)
            assert plain.empty or results.psnr(own) > results.psnr(plain), (layout, side, name)
            assert plain.empty or own["psnr"].min() > plain["psnr"].min(), (layout, side, name)


def test_readme_tells_the_work_and_the_time_that_balanced_leaves_in_sdxl():
    told = " ".join((ROOT / "README.md").read_text("utf-8").split())
    rows = results.of(results.variant_of("Balanced", "SDXL", 96, ""), results.at("SDXL", 96))
    ran = "".join(rows["ran"])  # the work of the steps of all images, in the full layout
    calls = {((), False): ran.count("."), ((), True): ran.count("d")}
    saved = layout_of(results.full_host("SDXL")).share_saved(TokenGrid(192, 192), calls, len(ran))
    assert f"*Balanced* leaves {100 * (1 - saved):.0f} % of the multiplications" in told
    time = 100 / float(told.partition("| hires pass |")[2].partition("| SDXL, 1536 px |")[2].split("x")[0])
    assert f"takes {time:.0f} % of the time" in told
