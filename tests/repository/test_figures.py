"""What is generated is what is committed, and the figures in the text are those of the stored rows."""

from __future__ import annotations

import math
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.models import full_layout
from todo_core import Settings, TokenGrid
from todo_core.estimate import Estimate
from todo_core.hosts import detect
from todo_core.patching.plan import Pass, make_plan
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


def test_the_program_names_what_it_has_written_and_what_it_lacks(monkeypatch, tmp_path, capsys):
    (tmp_path / "page").write_text("old")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "GENERATED", {"page": lambda page: "new"})
    for told in ("changed: page\n", "nothing changed\n"):
        pages.main()
        assert capsys.readouterr().out == told
    assert (tmp_path / "page").read_text() == "new"
    monkeypatch.setitem(sys.modules, "results", None)
    with pytest.raises(SystemExit, match=r"^results is missing. Use .venv-test/bin/python; python3 tests/run.py makes"):
        runpy.run_path(pages.__file__)


# docs/results -------------------------------------------------------------------------------------------------------


def test_decibels_in_the_text_of_the_results_are_those_of_a_table():
    page = RESULTS.read_text("utf-8")
    part = page.split("\n## Each way at the base\n")[1].split("\n## ToDo's own protocol")[0]
    known = {cell.strip(" *") for line in page.splitlines() if line[:1] == "|" for cell in re.split(r"[|,:]", line)}
    figures = re.findall(r"\b\d\d\.\d\b", part)
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
    gone = {"CA-ToMe 0.7", "EasyCache 0.2", "FBCache 0.4", "Spectrum 2 0"}  # measured with earlier adapters
    assert set(results.rows()["variant"]) - gone <= made | {"baseline"}
    assert not gone & made


@pytest.mark.parametrize("aim", results.AIMS)
def test_no_preset_is_farther_than_as_many_plain_steps(aim):
    for layout, side, name, part in results.passes():
        variant = results.variant_of(aim, layout, name)
        if len(results.of(variant, part)):
            _, own, _, plain = results.beside_plain_steps(layout, side, variant, part)
            assert own > plain or math.isinf(plain) or (side < 128 and name in results.UNIFORM), (layout, side, name)


@pytest.mark.parametrize("aim", results.AIMS)
def test_a_preset_does_what_its_rows_did(aim):
    for (is_sd1, adds_noise), variant in results.AIMS[aim].items():
        layout = "SD 1.5" if is_sd1 else "SDXL"
        size = TokenGrid(*2 * (96 * results.LAYOUTS[layout],))
        plan = make_plan(Settings.preset(aim), detect(full_layout(layout)), Pass(size, 10, adds_noise))
        kind = "deep layers" if plan.deep.kind == "deep" else "whole steps" if plan.reduced else "Skip steps"
        predicts = [f"{kind}, tolerance {plan.deep.tolerance:g}"] if plan.deep.predicts else []
        assert ", ".join(["ToDo 2"] * bool(plan.reduced) + predicts) == results.shown(variant).strip("*")


def test_readme_tells_the_work_and_the_time_that_balanced_leaves_in_sdxl():
    told, host, shares = " ".join((ROOT / "README.md").read_text("utf-8").split()), detect(full_layout("SDXL")), []
    for side in (192, 256):
        estimate = Estimate.of(host, make_plan(Settings(), host, Pass(TokenGrid(side, side), 10, adds_noise=False)))
        shares.append(round(100 * estimate.reduced / estimate.unpatched))
    assert "*Balanced* leaves {} and {} % of the multiplications".format(*shares) in told
    times = [100 / float(told.partition(f"| SDXL, {px} px (")[2].split("| ")[1].split("x")[0]) for px in (1536, 2048)]
    assert "takes {:.0f} and {:.0f} % of the time".format(*times) in told
