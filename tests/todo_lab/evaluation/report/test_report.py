"""The report: what it says about the rows."""

import re

import numpy as np
import pandas as pd
import pytest

from tests.todo_lab.evaluation.doubles import ABOUT, Double, small_jobs, sweep
from todo_core import Settings
from todo_lab.evaluation import variants
from todo_lab.evaluation.prompts.prompt_sets import evenly_spaced, load_prompts
from todo_lab.evaluation.report import aggregation, image_grids, matplotlib_files, report
from todo_lab.evaluation.report.aggregation import interval

ONE = [variants.from_settings(Settings(factor_1=2))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The report of a run on the double: 6 prompts, 2 scales, several variants; one fails and one is not repeatable."""
    ours = [variants.from_settings(Settings(factor_1=factor)) for factor in (2, 3, 4)]
    ours += [variants.from_settings(Settings(method="similarity", target="all", ratio_1=r)) for r in (0.25, 0.5)]
    ours += [*variants.from_presets(["Balanced"]), variants.from_peer("tomesd", {"ratio": 0.5})]
    prompts = evenly_spaced(load_prompts("pocket"), 6)
    work = small_jobs(variants.unique_variants(ours), prompts, scales=[2.0, 3.0])
    double = Double(broken=frozenset({"ToMe 0.25"}), unrepeatable=frozenset({"tomesd 0.5"}))
    out = tmp_path_factory.mktemp("results")
    sweep(out, work, double, runs=2, about={**ABOUT, "missing": {"ST-LPIPS": "no weights"}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matplotlib_files, "DPI", 50)  # small files are written faster
        patch.setattr(image_grids, "COLUMNS", 4)
        report.write_report(out)
    return out


def test_the_report_links_to_existing_pictures_and_lists_failures_repeats_and_missing_metrics(folder):
    text = (folder / "report.md").read_text("utf-8")
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    grids = [f"plots/grid-{scale}x-{number}.webp" for scale in (2, 3) for number in (1, 2)]
    assert shown == ["plots/frontier.png", *grids]
    assert all((folder / name).stat().st_size > 2000 for name in shown)
    assert "| ToMe 0.25 | 12 | RuntimeError: ToMe 0.25 is broken |" in text
    assert "84 images of 12 scenes" in text, "a failed row is no image"
    assert "The run is not complete: it has 84 of 96 images." in text
    assert "| ToDo 4 | 6 | 2.00x (2.00\u20132.00x) |" in text
    assert re.search(r"Not available: [^.]*ST-LPIPS[^.]*\. ST-LPIPS: no weights\.", text)
    assert "Not with tomesd 0.5 (0 of 12). Bit for bit with all other variants." in text


def test_the_table_has_every_row_and_setting(folder):
    table = pd.read_parquet(folder / "results.parquet")
    assert len(table) == 6 * 2 * 8
    assert {"mse", "ssim", "speed", "set_factor_1", "set_method"} <= set(table)
    row = table[(table["variant"] == "ToDo 4") & (table["hires_scale"] == 2)].iloc[0]
    assert row["speed"] == pytest.approx(2, rel=0.01)


def test_other_sizes_and_requests_have_a_report_with_a_table_of_their_own(tmp_path):
    changes = [{}, {"guidance": 7}, {"sampler": "Euler"}]
    work = small_jobs(variants.unique_variants(ONE), ["a cat"], size=(64, 96), changes=changes)
    sweep(tmp_path, work)
    text = report.write_report(tmp_path)
    assert "| variant | guidance 7 | Euler, Normal |" in text
    assert "made once" in text
    (table,) = (part for part in text.split("## ") if part.startswith("Table"))
    assert "| ToDo 2 | 1 |" in table


def test_a_folder_without_rows_has_no_report(tmp_path):
    with pytest.raises(ValueError, match="no results"):
        report.write_report(tmp_path)


def timed(variant, scene=0, *, share=1, slow=1, seconds=0.8, **other):
    """A row of a pass that takes a share of the baseline's seconds, on a machine so many times slower."""
    usual = {"error": None, "peer": "", "hires_scale": 2.0, "mse": 0.0, "psnr": None, "prompt": str(scene)}
    times = {"hires_seconds": share * slow * seconds, "baseline_step_seconds": slow * seconds / 8}
    return usual | {"variant": variant, "scene": scene} | times | other


def test_seconds_and_speeds_of_a_row_agree():
    """The second variant was measured while the machine was three times as slow."""
    rows = []
    for scene, seconds in enumerate([0.8, 0.9, 1.6]):
        rows.append(timed("baseline", scene, seconds=seconds))
        rows.append(timed("quick", scene, share=0.5, seconds=seconds))
        rows.append(timed("quick, later", scene, share=0.4, slow=3, seconds=seconds))
    summary = aggregation.summarize(aggregation.to_table(rows)).set_index("variant")
    assert list(summary["hires_seconds"]) == pytest.approx([0.9, 0.45, 0.36])
    assert list(summary["speed"]) == pytest.approx([1, 2, 2.5])


def test_an_untimed_report_compares_multiplications():
    rows = [{"scene": 0, "variant": name, "multiplications": m} for name, m in (("baseline", 300), ("half", 150))]
    assert aggregation.to_table([{**row, "error": None} for row in rows])["speed"].tolist() == [1, 2]


def test_an_interval_is_that_of_drawing_prompts_with_all_their_images():
    """With n prompts the share of draws without prompt 0 is (1 - 1/n)^n, so these means have a known distribution."""
    figures = np.zeros((8, 3))
    figures[0] = 8
    assert interval(figures, np.nanmean) == (0, 3)  # P(prompt 0 is drawn more than 3 times) is 1.1 %
    assert interval(np.where(np.arange(3) == 2, np.nan, figures), np.nanmean) == (0, 3)
    assert np.isnan(interval(figures[:4], np.nanmean)).all()
    assert interval(figures[:5], np.nanmean)[0] == 0
    assert interval(np.full((6, 2), 7.0), np.nanmedian) == (7, 7)


def test_intervals_of_a_summary_hold_the_figure_and_turn_with_the_unit():
    rows = [timed("baseline", scene, mse=0, psnr=20.0) for scene in range(8)]
    rows += [timed("a", scene, mse=1e-4 * (scene + 1), psnr=20.0) for scene in range(8)]
    row = aggregation.summarize(aggregation.to_table(rows)).iloc[1]
    assert row["mse"] == pytest.approx(4.5e-4)
    assert row["mse_low"] < row["mse"] < row["mse_high"]
    assert row["psnr_low"] == pytest.approx(-10 * np.log10(row["mse_high"]))
    assert row["psnr_low"] < row["psnr"] < row["psnr_high"]
    assert (row["speed_low"], row["speed_high"]) == (1, 1)


def test_the_pareto_front_has_the_variants_that_no_other_beats():
    points = {"variant": list("abcde"), "speed": [1.0, 1.5, 2.0, 1.4, 2.0], "mse": [0.1, 0.2, 0.4, 0.3, 0.5]}
    assert list(aggregation.pareto_front(pd.DataFrame(points))["variant"]) == ["c", "b", "a"]
