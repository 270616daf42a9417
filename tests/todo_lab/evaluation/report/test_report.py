"""The report: what it says about the rows, and that its HTML is self-contained."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from tests.todo_lab.evaluation.doubles import Double, quick_metrics
from todo_core import Settings
from todo_lab.evaluation import variants
from todo_lab.evaluation.prompts import prompt_sets
from todo_lab.evaluation.report import aggregation, charts, image_grids, matplotlib_files, report
from todo_lab.evaluation.report.bootstrap import interval
from todo_lab.evaluation.report.findings import list_findings
from todo_lab.evaluation.running import jobs
from todo_lab.evaluation.running.row_store import RowStore
from todo_lab.evaluation.running.runner import local_engine, run_jobs
from todo_lab.sampling.request import Request


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The report of a run on the double: 6 prompts, 2 scales, several variants; one fails and one is not repeatable."""
    ours = [variants.from_settings(Settings(factor_1=factor)) for factor in (2, 3, 4)]
    ours += [variants.from_settings(Settings(method="similarity", target="all", ratio_1=r)) for r in (0.25, 0.5)]
    chosen = variants.unique_variants(
        [*ours, *variants.from_presets(["ToDo balanced"]), variants.from_peer("tomesd", {"ratio": 0.5})]
    )
    base = Request(prompt="", steps=2, hires_steps=4)
    texts = prompt_sets.evenly_spaced(prompt_sets.load_prompts("pocket"), 6)
    work = jobs.make_jobs(jobs.make_scenes(texts, seeds=[1], sizes=[(64, 64)], scales=[2.0, 3.0], base=base), chosen)
    double = Double(broken=frozenset({"ToMe 0.25"}), unrepeatable=frozenset({"tomesd 0.5"}))
    out = tmp_path_factory.mktemp("results")
    about = {"runs": 2, "model": "none", "missing": {"ST-LPIPS": "no weights"}}
    store = RowStore.begin(out, work, about, resume=False)
    run_jobs(work, store, local_engine(double, runs=2, metrics=quick_metrics()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matplotlib_files, "DPI", 50)  # small files are written faster
        report.write_report(out)
    return out


class Page(HTMLParser):
    """The sources of a page, and whether its tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_html_is_complete_and_self_contained(folder):
    page = Page((folder / "report.html").read_text("utf-8"))
    assert not page.open
    assert len(page.sources) >= 6
    assert {source.partition(";base64,")[0] for source in page.sources} == {"data:image/png", "data:image/webp"}


def test_the_markdown_links_to_existing_pictures(folder):
    text = (folder / "report.md").read_text("utf-8")
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert {"plots/frontier.png", "plots/amount.png", "plots/prompts.png", "plots/seconds.png"} <= set(shown)
    assert sum("grid-" in name for name in shown) == 4  # ToDo and the others, at two scales; ToMe has one amount left
    assert all((folder / name).stat().st_size > 2000 for name in shown)


def test_the_markdown_lists_failures_repeats_and_missing_metrics(folder):
    text = (folder / "report.md").read_text("utf-8")
    assert "| ToMe 0.25 | 12 | RuntimeError: ToMe 0.25 is broken |" in text
    assert "| tomesd 0.5 | 0 of 12 |" in text
    assert "| ToDo 2 | 12 of 12 |" in text
    assert re.search(r"Not available: [^.]*ST-LPIPS[^.]*\. ST-LPIPS: no weights\.", text)
    assert "| ToDo 4 | 6 | 2.00x (2.00\u20132.00x) |" in text


def test_the_table_has_every_row_and_setting(folder):
    table = pd.read_parquet(folder / "results.parquet")
    assert len(table) == 6 * 2 * 8
    assert {"mse", "ssim", "speed", "baseline_hires_seconds", "set_factor_1", "set_method", "words"} <= set(table)
    row = table[(table["variant"] == "ToDo 4") & (table["hires_scale"] == 2)].iloc[0]
    assert row["speed"] == pytest.approx(2, rel=0.01)
    assert row["baseline_hires_seconds"] == pytest.approx(2 * row["hires_seconds"])
    assert row["total_speed"] == pytest.approx((1 + 0.4) / (1 + 0.2))


def test_the_speed_of_a_pass_includes_full_steps_and_excludes_drift():
    """A window leaves some steps full, and the baseline may have been made when the machine was faster."""
    usual = {"scene": 0, "error": None, "peer": "", "first_seconds": 0.4}
    quick = {"step_seconds": 0.1, "baseline_step_seconds": 0.1, "hires_seconds": 0.8, "total_seconds": 1.2}
    windowed = {"step_seconds": 0.05, "baseline_step_seconds": 0.1, "hires_seconds": 0.5, "total_seconds": 0.9}
    slow = {name: 3 * seconds for name, seconds in windowed.items()}
    rows = [
        {**usual, **quick, "variant": "baseline", "speed": 1.0},
        {**usual, **windowed, "variant": "window", "speed": 2.0},
        {**usual, **slow, "variant": "window in a slow minute", "speed": 2.0},
    ]
    table = aggregation.to_table(rows).set_index("variant")
    assert list(table["speed"]) == pytest.approx([1, 0.8 / 0.5, 0.8 / 0.5])
    assert list(table["total_speed"]) == pytest.approx([1, 1.2 / 0.9, 1.2 / 0.9])
    assert list(table["step_speed"]) == [1, 2, 2]


def made(values: dict[str, list[float]], words: list[int]) -> pd.DataFrame:
    """Rows with these MSEs: one list per variant, one value per prompt."""
    usual = {"amount": None, "scale": "", "peer": "", "hires_scale": 2.0, "nouns": None, "speed": 1.0, "error": None}
    usual |= {"step_seconds": 1.0, "baseline_step_seconds": 1.0, "psnr": 20.0}
    rows = [
        {
            **usual,
            "variant": name,
            "family": name,
            "mse": mse,
            "scene": i,
            "prompt": f"p{i}",
            "words": words[i],
            "key": i,
        }
        for name, errors in values.items()
        for i, mse in enumerate(errors)
    ]
    return aggregation.to_table(rows)


def test_a_known_correlation():
    words = [1, 2, 3, 4, 5, 6]
    table = made({"baseline": [0] * 6, "up": [1, 2, 3, 4, 5, 9], "down": [9, 5, 4, 3, 2, 1]}, words)
    found = aggregation.correlations(table).set_index("variant")
    assert found["rho"].to_dict() == {"up": pytest.approx(1), "down": pytest.approx(-1)}
    assert set(found["of"]) == {"words"}
    assert aggregation.correlations(made({"baseline": [0] * 4, "up": [1, 2, 3, 4]}, [1, 2, 3, 4])).empty


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([9, 5, 4, 3, 2, 1], "It falls with it"),
        ([1, 2, 3, 4, 5, 9], "It rises with it"),
        ([1, 9, 2, 3, 8, 1], "No clear relation"),
    ],
)
def test_findings_say_the_direction(values, said):
    table = made({"baseline": [0] * 6, "a": values}, [1, 2, 3, 4, 5, 6])
    text = " ".join(list_findings(table, aggregation.summarize(table)))
    assert f"the number of words in the prompt? {said}" in text


def test_findings_of_the_double(folder):
    table = aggregation.to_table(RowStore(folder).latest())
    text = " ".join(list_findings(table, aggregation.summarize(table)))
    assert "At every step in 2 of 2 series." in text
    assert "Not with tomesd 0.5" in text


def test_each_peer_has_its_match_or_none():
    mses = {"baseline": 0, "a": 0.1, "b": 0.2, "c": 0.3, "p": 0.25, "q": 0.1, "r": 0.9, "s": 0.5, "t": 0.3}
    speeds = {"baseline": 1, "a": 1.5, "b": 1.6, "c": 2.0, "p": 1.55, "q": 1.4, "r": 2.1, "s": 1.4, "t": 1.52}
    table = made({name: [mse] * 6 for name, mse in mses.items()}, [1] * 6)
    table["speed"], table["peer"] = table["variant"].map(speeds), table["variant"].where(table["variant"] > "c", "")
    table.loc[table["variant"] == "baseline", "peer"] = ""
    found = aggregation.matches(table, aggregation.summarize(table)).set_index("variant")
    assert found["ours"].to_dict() == {"p": "b", "q": "a", "r": "", "s": "a", "t": "a"}, "1.5 is as fast as 1.52"
    assert found["ratio"].to_dict() == pytest.approx({"p": 1.25, "q": 1, "r": np.nan, "s": 5, "t": 3}, nan_ok=True)


def test_a_match_is_compared_image_by_image():
    """Each image of the peer has 1.5 or 2.5 times the MSE of ours, though the images themselves differ by far more."""
    ours = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32]
    factors = [1.5, 2.5, 1.5, 2.5, 1.5, 2.5]
    theirs = [a * b for a, b in zip(ours, factors, strict=True)]
    table = made({"baseline": [0] * 6, "ours": ours, "theirs": theirs}, [1] * 6)
    table["peer"] = table["variant"].where(table["variant"] == "theirs", "")
    summary = aggregation.summarize(table)
    row = aggregation.matches(table, summary).iloc[0]
    assert row["ratio"] == pytest.approx(sum(theirs) / sum(ours))
    assert 1.5 <= row["ratio_low"] < row["ratio"] < row["ratio_high"] <= 2.5
    both = summary.set_index("variant")
    assert both.loc["ours", "mse_high"] > both.loc["theirs", "mse_low"]  # so overlapping intervals say less
    few = table[table["scene"] < 4]
    assert np.isnan(aggregation.matches(few, aggregation.summarize(few)).iloc[0]["ratio_low"])


@pytest.mark.parametrize(("value", "text"), [(0.994, "0.99"), (2, "2"), (2.46, "2.5"), (118.4, "120"), (4321, "4300")])
def test_a_ratio_of_errors_has_two_digits_and_no_exponent(value, text):
    assert report.two_digits(value) == text


def test_every_variant_counts_among_the_visible_ones_also_without_an_amount():
    table = made({"baseline": [0] * 6, "hypertile": [1] * 6, "few": [1] * 6}, [1] * 6)
    table.loc[(table["variant"] == "few") & (table["scene"] < 4), "psnr"] = 40.0
    table.loc[(table["variant"] == "hypertile") & (table["scene"] == 0), "psnr"] = 40.0
    table.loc[table["variant"] == "baseline", "psnr"] = np.nan
    summary = aggregation.summarize(table).set_index("variant")
    assert summary["visible"].to_dict() == pytest.approx({"baseline": 0, "hypertile": 5 / 6, "few": 2 / 6})
    assert summary["amount"].isna().all()
    text = " ".join(list_findings(table, summary.reset_index()))
    assert "(below 30 dB)? hypertile at 2x (83%)." in text


def test_seconds_and_speeds_of_a_row_agree():
    """The second variant was measured while the machine was three times as slow."""
    usual = {"error": None, "peer": "", "first_seconds": 0.4, "family": "a", "scale": "", "hires_scale": 2.0}
    rows = []
    for scene, seconds in enumerate([0.8, 0.9, 1.6]):
        for name, share, slow in (("baseline", 1, 1), ("quick", 0.5, 1), ("quick, later", 0.4, 3)):
            steps = {"step_seconds": share * slow * seconds / 8, "baseline_step_seconds": slow * seconds / 8}
            total = {"hires_seconds": share * slow * seconds, "total_seconds": share * slow * seconds + 0.4 * slow}
            speed = 1.03 if name == "baseline" else 1 / share  # its own steps against those timed beside it
            row = {"variant": name, "scene": scene, "prompt": str(scene), "speed": speed, "mse": 0.0, "psnr": None}
            rows.append(usual | row | steps | total)
    summary = aggregation.summarize(aggregation.to_table(rows)).set_index("variant")
    assert list(summary["hires_seconds"]) == pytest.approx([0.9, 0.45, 0.36])
    for seconds, speed in aggregation.SPEEDS.items():
        assert list(summary.loc["baseline", seconds] / summary[seconds]) == pytest.approx(list(summary[speed]))


def test_an_interval_is_that_of_drawing_prompts_with_all_their_images():
    """With n prompts the share of draws without prompt 0 is (1 - 1/n)^n, so these means have a known distribution."""
    figures = np.zeros((8, 3))
    figures[0] = 8
    low, high = interval(figures, np.nanmean)
    assert (low, high) == (0, 3)  # P(prompt 0 is drawn more than 3 times) is 1.1 %
    assert interval(figures, np.nanmean) == (low, high)
    assert interval(np.where(np.arange(3) == 2, np.nan, figures), np.nanmean) == (low, high)
    assert np.isnan(interval(figures[:4], np.nanmean)).all()
    assert interval(np.full((6, 2), 7.0), np.nanmedian) == (7, 7)


def test_intervals_of_a_summary_hold_the_figure_and_turn_with_the_unit():
    table = made({"baseline": [0] * 8, "a": [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4]}, [1] * 8)
    row = aggregation.summarize(table).iloc[1]
    assert row["mse"] == pytest.approx(4.5e-4)
    assert row["mse_low"] < row["mse"] < row["mse_high"]
    assert row["psnr_low"] == pytest.approx(-10 * np.log10(row["mse_high"]))
    assert row["psnr_low"] < row["psnr"] < row["psnr_high"]
    assert (row["speed_low"], row["speed_high"]) == (1, 1)


@pytest.mark.parametrize("name", ["words", "nouns"])
def test_the_line_of_the_prompts_joins_groups_of_five_and_more(name):
    prompts = pd.DataFrame({"words": [3] * 6 + [4] * 4, "nouns": [1] * 6 + [2] * 4, "relative": np.arange(10.0)})
    found = charts._medians(prompts, name)
    assert list(found) == ([4.5] if name == "words" else [2.5])
    assert charts._medians(prompts[:4], name).empty


def test_the_pareto_front_has_the_variants_that_no_other_beats():
    summary = pd.DataFrame(
        {"variant": list("abcde"), "speed": [1.0, 1.5, 2.0, 1.4, 2.0], "mse": [0.1, 0.2, 0.4, 0.3, 0.5]}
    )
    assert list(aggregation.pareto_front(summary)["variant"]) == ["c", "b", "a"]


def test_the_crop_shows_where_images_differ_most():
    baseline = np.zeros((64, 96, 3), np.uint8)
    image = baseline.copy()
    image[40:48, 70:78] = 200
    rows, columns = image_grids._most_changed_window(baseline, image)
    assert rows.start <= 40
    assert rows.stop >= 48
    assert columns.start <= 70
    assert columns.stop >= 78
    assert rows.stop - rows.start == columns.stop - columns.start == 16


def test_text_is_escaped(tmp_path):
    from todo_lab.evaluation.report.document import Document

    document = Document("a < b")
    document.text("<script>")
    document.table(["x|y"], [["<b>"]])
    assert "<script>" not in document.html()
    assert "&lt;b&gt;" in document.html()
    assert "x\\|y" in document.markdown()


def test_a_folder_without_rows_has_no_report(tmp_path):
    with pytest.raises(ValueError, match="no results"):
        report.write_report(tmp_path)


def test_sizes_other_than_square_have_a_report(tmp_path):
    base = replace(Request(prompt=""), steps=2, hires_steps=4)
    chosen = variants.unique_variants(variants.from_presets(["ToDo balanced"]))
    work = jobs.make_jobs(jobs.make_scenes(["a cat"], seeds=[1], sizes=[(64, 96)], scales=[2.0], base=base), chosen)
    about = {"runs": 1, "model": "none"}
    run_jobs(
        work,
        RowStore.begin(tmp_path, work, about, resume=False),
        local_engine(Double(), runs=1, metrics=quick_metrics()),
    )
    text = report.write_report(tmp_path).markdown()
    assert "Too few prompts" in text
    assert "made once" in text


def test_other_requests_have_a_table_of_their_own(tmp_path):
    base = replace(Request(prompt=""), steps=2, hires_steps=4)
    changes = [{}, {"guidance": 7}, {"sampler": "Euler"}]
    scenes = jobs.make_scenes(["a cat"], seeds=[1], sizes=[(64, 64)], scales=[2.0], base=base, changes=changes)
    work = jobs.make_jobs(scenes, variants.unique_variants([variants.from_settings(Settings(factor_1=2))]))
    store = RowStore.begin(tmp_path, work, {"runs": 1, "model": "none"}, resume=False)
    run_jobs(work, store, local_engine(Double(), runs=1, metrics=quick_metrics()))
    text = report.write_report(tmp_path).markdown()
    assert "| variant | guidance 7 | Euler |" in text
    (table,) = (part for part in text.split("## ") if part.startswith("Table"))
    assert "| ToDo 2 | 1 |" in table
