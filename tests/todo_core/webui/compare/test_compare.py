"""Compare on the double: what runs, what comes out, and what is kept when it is stopped or fails."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from modules import images, processing, script_callbacks, shared
from PIL import Image

from tests.models import LatentDiffusion, shallow_ldm_unet
from tests.todo_core.webui.webui_double import Processing, WebUI, load_script
from todo_core.settings import BUILT_IN
from todo_core.webui.compare import controls
from todo_core.webui.compare.output import legend
from todo_core.webui.compare.request import FROM_PANEL, CompareRequest
from todo_core.webui.generation import request


@dataclass(eq=True)
class Compared(Processing):
    """The WebUI's ``p`` before it has been run."""

    width: int = 96
    height: int = 64
    steps: int = 2
    seed: int = -1
    subseed: int = -1
    prompt: str = "a cat"
    styles: tuple = ()
    override_settings: object = None
    do_not_save_grid: bool = False
    do_not_save_samples: bool = False
    hr_second_pass_steps: int = 0
    outpath_grids: str = ""

    def __post_init__(self):
        self.override_settings = dict(self.override_settings or {})


@dataclass(eq=True)
class ComparedImg2Img(Compared):
    init_images: tuple = (None,)
    enable_hr: bool = False


class Runs:
    """Stands in for ``process_images``: each call runs the always visible script on the double."""

    def __init__(self, script, model, args=(False,)):
        self.webui, self.args, self.processed, self.fail = WebUI(script, model), args, [], {}

    def __call__(self, p):
        self.processed.append(p)
        shared.state.skipped = False
        if error := self.fail.get(len(self.processed)):
            raise error
        count = p.n_iter * p.batch_size
        p.seeds = p.all_seeds = [p.seed + n for n in range(count)]
        p.all_prompts = p.all_negative_prompts = [p.prompt] * count
        p.all_subseeds = [p.subseed] * count
        done = self.webui.generate(p, *self.args)
        pictures = [picture(latent) for latent in done.images]
        lists = {n: getattr(p, n) for n in ("all_prompts", "all_negative_prompts", "all_seeds", "all_subseeds")}
        text = processing.create_infotext(p, p.all_prompts, p.all_seeds, p.all_subseeds)
        return processing.Processed(p, pictures, p.seed, text, p.subseed, **lists, infotexts=[text] * count)


def picture(latent):
    values = ((latent[:3].numpy() + 3) / 6 * 255).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
    return Image.fromarray(values).resize((96, 64))


@pytest.fixture(scope="module")
def model():
    return LatentDiffusion(shallow_ldm_unet(), image_size=8)


@pytest.fixture
def runs(script, model, monkeypatch, opts):
    opts.data.update(enable_pnginfo=True, grid_text_active_color="#000000")
    stand_in = Runs(script, model)
    monkeypatch.setattr(processing, "run", stand_in)
    return stand_in


@pytest.fixture
def compared(runs, tmp_path):
    """Run the script of the dropdown; returns the WebUI's Processed."""
    script = load_script("todo_compare").CompareScript()

    def run(p=None, names=("ToDo fast", "ToMe paper"), heat_maps=True, repeats=1):
        p = p or Compared()
        p.outpath_grids = str(tmp_path)
        return script.run(p, list(names), heat_maps, repeats)

    return run


def rows(done):
    return json.loads(done.js())["todo_compare"]["rows"]


def during(call, action):
    """Let something happen at the given call of a denoiser, counted over all runs."""
    count = iter(range(1000))
    script_callbacks.on_cfg_denoiser(lambda params: action() if next(count) == call else None)


def at_step_of_run(run, step=0):
    """Number of the denoiser call: the warm-up and each variant take two steps in each of two passes."""
    return run * 4 + step


def test_the_same_seed_runs_as_baseline_and_with_each_preset(compared, runs):
    done = compared()
    warm, *variants = runs.processed
    assert [p.seed for p in variants] == [4, 4, 4], "the random seed is drawn once"
    assert (warm.steps, warm.do_not_save_samples) == (2, True)
    assert [row["name"] for row in rows(done)] == ["baseline", "ToDo fast", "ToMe paper"]
    assert done.infotexts[1] == "Seed: 4"
    assert "ToDo method: downsample, ToDo factor 1: 3" in done.infotexts[2]
    assert "ToDo method: similarity, ToDo target: all" in done.infotexts[3]
    assert len(done.images) == len(done.infotexts) == 4
    assert done.index_of_first_image == 1
    assert len(done.all_seeds) == len(done.all_prompts) == 3


def test_the_grids_infotext_says_what_it_is(compared):
    done = compared()
    assert done.infotexts[0] == done.info == "Seed: 4, Script: ToDo compare, ToDo compare: ToDo fast; ToMe paper"
    assert done.images[0].info["parameters"] == done.info
    assert controls.pasted_presets({"ToDo compare": "ToDo fast; ToMe paper"})["value"] == ["ToDo fast", "ToMe paper"]
    assert controls.pasted_presets({}) is None


def test_it_measures_times_and_differences(compared):
    baseline, *reduced = rows(compared())
    assert baseline["seconds"] > 0
    assert baseline["ratio"] == 1
    assert baseline["mse"] is None
    for row in reduced:
        assert row["spread"] is None
        assert row["ratio"] == pytest.approx(baseline["seconds"] / row["seconds"])
        assert row["mse"] > 0
        assert 0 < row["psnr"] < 100
        assert row["ssim"] < 1


def test_the_upscale_button_tells_the_numbers_in_the_comments(compared):
    """The WebUI keeps the JSON of the image that is upscaled, and drops this answer's."""
    p = Compared()
    p.txt2img_upscale = True
    comments = compared(p).comments.splitlines()
    assert [line.split(": ")[0] for line in comments[-3:]] == ["baseline", "ToDo fast", "ToMe paper"]
    assert "SSIM" in comments[-1]
    assert "SSIM" not in compared().comments


def test_only_the_passes_that_were_reduced_are_timed(compared, runs):
    assert json.loads(compared().js())["todo_compare"]["passes"] == ["hires"]
    runs.args = [{"passes": "all", "factor_1": 2}]
    assert json.loads(compared(names=[FROM_PANEL]).js())["todo_compare"]["passes"] == ["first", "hires"]


@pytest.mark.parametrize("one_sampler", [False, True])
def test_the_models_calls_are_timed_and_nothing_else(compared, monkeypatch, one_sampler):
    clock = iter(range(10_000))
    monkeypatch.setattr("todo_core.webui.generation.pass_timer.time.perf_counter", lambda: float(next(clock)))
    # a step reads the clock when it begins and at the model's one answer: one second each, two steps
    assert [row["seconds"] for row in rows(compared(Compared(one_sampler=one_sampler)))] == [2, 2, 2]


def test_the_grid_has_a_column_for_each_and_a_row_for_the_differences(compared):
    done = compared()
    assert done.images[0].size == (3 * 96, 2 * 64)
    assert compared(heat_maps=False).images[0].size == (3 * 96, 64)
    assert [lines[0] for lines in images.labels] == ["baseline", "ToDo fast", "ToMe paper"]
    assert any("x" in line for line in images.labels[1])


def test_the_baseline_is_leftmost_and_the_maps_show_differences(compared):
    done = compared()
    grid, baseline, fast = done.images[0], done.images[1], done.images[2]
    assert np.array_equal(grid.crop((0, 0, 96, 64)), baseline)
    differs = np.abs(np.asarray(baseline).astype(int) - np.asarray(fast)).max(axis=-1) > 0
    drawn = np.asarray(grid.crop((96, 64, 192, 128))).max(axis=-1) > 0
    assert differs.any()
    assert np.array_equal(drawn, differs)
    assert np.array_equal(grid.crop((0, 64, 96, 128)), legend((96, 64)))


def test_batches_give_a_row_each_and_their_means(compared):
    p = Compared(batch_size=2, n_iter=2)
    done = compared(p, names=["ToDo fast"])
    assert done.images[0].size == (2 * 96, 8 * 64)
    assert len(done.images) == 1 + 2 * 4
    assert done.all_seeds == [4, 5, 6, 7] * 2
    row = rows(done)[1]
    assert row["mse"] == pytest.approx(np.mean([one["mse"] for one in row["images"]]))
    assert len({one["mse"] for one in row["images"]}) == 4


def test_a_grid_that_is_too_large_for_the_webui_is_made_smaller(compared, opts):
    opts.img_max_size_mp = 0.01
    picture = compared().images[0]
    assert picture.width * picture.height <= 10_000


def test_the_table_lies_beside_the_grid(compared, tmp_path):
    done = compared()
    table = list(csv.DictReader((tmp_path / "todo_compare-0000.csv").open()))
    assert [row["name"] for row in table] == ["baseline", "ToDo fast", "ToMe paper"]
    assert float(table[1]["mse"]) == rows(done)[1]["mse"]


def test_where_the_webui_saves_no_grid_nothing_is_saved(compared, opts, tmp_path):
    compared(Compared(do_not_save_grid=True))
    opts.grid_save = False
    compared()
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_written_do_not_cost_the_images(compared, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    done = compared()
    assert len(done.images) == 4
    assert "no space left" in done.comments


def test_the_panels_settings_are_compared_though_it_is_unticked(compared, runs):
    runs.args = [False, "similarity"]
    done = compared(names=[FROM_PANEL])
    assert "ToDo method: similarity" in done.infotexts[2]
    assert "ToDo" not in done.infotexts[1]


def test_a_ticked_panel_does_not_touch_the_baseline(compared, runs):
    runs.args = [{"method": "similarity"}]
    assert compared(names=["ToDo fast"]).infotexts[1] == "Seed: 4"


def test_without_hires_fix_it_says_that_nothing_was_reduced(compared):
    done = compared(Compared(enable_hr=False))
    assert "nothing was reduced in any variant" in done.comments
    assert "ToDo fast, ToMe paper: reduced nothing: hires fix is off" in done.comments
    assert [row["mse"] for row in rows(done)[1:]] == [0, 0]
    assert rows(done)[1]["psnr"] is None, "JSON has no infinity"
    assert json.loads(done.js())["todo_compare"]["passes"] == ["first"]


def test_img2img(compared):
    done = compared(ComparedImg2Img(), names=["ToDo fast"])
    assert "ToDo method: downsample, ToDo factor 1: 3" in done.infotexts[2]
    assert json.loads(done.js())["todo_compare"]["passes"] == ["img2img"]


def test_an_interrupt_keeps_what_is_done(compared, runs):
    during(at_step_of_run(2, 3), lambda: setattr(shared.state, "interrupted", True))
    done = compared()
    assert len(runs.processed) == 3, "the third variant is not begun"
    assert [row["trouble"] for row in rows(done)] == ["", "cut short"]
    assert len(done.images) == 3
    assert "ToDo fast cut short" in done.comments


@pytest.mark.parametrize("stop", ["interrupted", "skipped"])
@pytest.mark.parametrize("run", [1, 2])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_an_interrupt_between_two_denoiser_calls_cuts_the_image_short(compared, stop, run, step):
    """No hook on the denoiser sees it: its next call raises an InterruptedException at once, or there is none."""
    steps = iter(range(1000))

    def after_step(number):
        if next(steps) == at_step_of_run(run, step):
            setattr(shared.state, stop, True)

    trouble = [row["trouble"] for row in rows(compared(Compared(after_step=after_step)))]
    after = [""] * (3 - run) if stop == "skipped" else []
    assert trouble == [""] * (run - 1) + ["cut short"] + after


def test_a_skip_cuts_one_variant_and_the_next_runs(compared):
    during(at_step_of_run(2, 1), lambda: setattr(shared.state, "skipped", True))
    assert [row["trouble"] for row in rows(compared())] == ["", "cut short", ""]


def test_stopping_after_the_current_image_finishes_it(compared):
    during(at_step_of_run(2, 1), lambda: setattr(shared.state, "stopping_generation", True))
    assert [row["trouble"] for row in rows(compared())] == ["", ""]


def test_an_interrupt_during_the_warm_up_gives_no_images(compared):
    during(0, lambda: setattr(shared.state, "interrupted", True))
    done = compared()
    assert done.images == []
    assert "interrupted before the first image" in json.loads(done.js())["comments"]


def test_a_grid_of_the_baseline_alone_names_no_presets(compared):
    during(at_step_of_run(1), lambda: setattr(shared.state, "interrupted", True))
    done = compared()
    assert "ToDo compare:" not in done.infotexts[0]
    assert "in any variant" not in done.comments, "no variant has run"
    assert "baseline cut short" in done.comments


def test_an_interrupted_reference_is_not_compared_with(compared):
    during(at_step_of_run(1, 1), lambda: setattr(shared.state, "skipped", True))
    baseline, *others = rows(compared())
    assert baseline["trouble"] == "cut short"
    assert all(row["seconds"] > 0 and row["mse"] is row["ratio"] is None for row in others)


@pytest.mark.parametrize(("run", "name"), [(2, "baseline"), (3, "ToDo fast")])
def test_a_failing_variant_is_told_and_the_others_are_kept(compared, runs, run, name):
    runs.fail[run] = RuntimeError("out of memory")
    done = compared()
    assert {row["name"]: row["trouble"] for row in rows(done)}[name] == "failed: out of memory"
    assert f"{name} failed: out of memory" in done.comments
    assert len(done.images) == 3


def test_a_failing_warm_up_costs_nothing(compared, runs):
    runs.fail[1] = RuntimeError("too few steps")
    assert len(compared().images) == 4


def test_where_every_variant_fails_the_webui_shows_the_error(compared, runs):
    runs.fail = {n: RuntimeError("out of memory") for n in (2, 3, 4)}
    with pytest.raises(RuntimeError, match="out of memory"):
        compared()


@pytest.mark.parametrize(
    ("names", "repeats", "word"),
    [
        ([], 1, "at least one"),
        (["no such"], 1, "'no such' is not possible"),
        ([" ToDo fast"], 1, "' ToDo fast' is not possible"),
        ([["ToDo fast"]], 1, "at least one"),
        (["ToDo fast"], 0, "Repeats: 0 is not possible"),
        (["ToDo fast"], "often", "Repeats: 'often' is not possible"),
    ],
)
def test_bad_values_are_a_message_before_the_first_image(compared, runs, names, repeats, word):
    done = compared(names=names, repeats=repeats)
    assert runs.processed == done.images == []
    assert word in done.comments
    assert word in json.loads(done.js())["comments"]


def test_arguments_that_a_request_leaves_out_are_no_error(runs, tmp_path):
    """The WebUI's API hands over as many as were sent."""
    script = load_script("todo_compare").CompareScript()
    p = Compared()
    p.outpath_grids = str(tmp_path)
    assert "at least one" in script.run(p).comments
    assert len(script.run(p, ["ToDo fast"]).todo_info["todo_compare"]["rows"]) == 2


def test_rounds_are_interleaved_and_give_a_median_and_a_spread(compared, runs, monkeypatch):
    took = iter([*[1, 1, 1, 1], *[1, 1, 4, 4], *[1, 1, 1, 1], *[1, 1, 2, 2], *[1, 1, 1, 1], *[1, 1, 3, 3]])
    clock = [0.0, False]

    def now():
        clock[0], clock[1] = clock[0] + (next(took) if clock[1] else 0), not clock[1]
        return clock[0]

    monkeypatch.setattr("todo_core.webui.generation.pass_timer.time.perf_counter", now)
    done = compared(names=["ToDo fast"], repeats=3)
    warm, *variants = runs.processed
    assert [request.overrides_of(p) for p in variants] == [{"enabled": False}, {"preset": "ToDo fast"}] * 3
    assert [p.do_not_save_samples for p in variants] == [False] * 2 + [True] * 4
    baseline, fast = rows(done)
    assert (baseline["seconds"], baseline["spread"]) == (2, 0)
    assert (fast["seconds"], fast["spread"], fast["ratio"]) == (6, 2, 2 / 6)
    assert len(done.images) == 3
    assert "6.00 ± 2.00" in controls.table_html(done.js())


def test_an_interrupt_in_a_later_round_keeps_the_first(compared, runs):
    during(at_step_of_run(4, 1), lambda: setattr(shared.state, "interrupted", True))
    done = compared(repeats=2)
    assert len(runs.processed) == 5
    assert [row["trouble"] for row in rows(done)] == ["", "", ""]


def test_a_failing_repetition_costs_its_time_alone(compared, runs):
    runs.fail[5] = RuntimeError("out of memory")
    done = compared(names=["ToDo fast"], repeats=2)
    assert [row["trouble"] for row in rows(done)] == ["", ""]
    assert rows(done)[1]["spread"] is None


def test_equal_presets_run_once(compared, runs, tmp_path):
    from todo_core.webui.presets import Presets

    Presets(tmp_path / "data" / "presets.json").save("mine", BUILT_IN["ToDo fast"])
    done = compared(names=["ToDo fast", "mine"])
    assert [row["name"] for row in rows(done)] == ["baseline", "ToDo fast"]
    assert "ToDo compare: mine equals ToDo fast, and runs once." in done.comments


def test_names_can_be_text(compared):
    chosen = CompareRequest.of(" ToDo fast; ToMe paper;ToDo fast", True, 2.0, load_presets())
    assert chosen.names == ("ToDo fast", "ToMe paper")


def load_presets():
    from todo_core.webui.presets import Presets

    return Presets(Path("/nonexistent/presets.json"))


def test_progress_is_shown(compared):
    progress = []
    during(at_step_of_run(1), lambda: progress.append((shared.state.job_count, shared.state.textinfo)))
    compared(Compared(n_iter=2))
    assert progress == [(1 + 3 * 2, "ToDo compare: baseline (round 1 of 1)")]
    assert shared.state.textinfo is None


def test_nothing_stays_on_what_the_webui_handed_over(compared):
    p = Compared()
    before = vars(p).copy()
    compared(p)
    changed = {name for name, value in vars(p).items() if name not in before or value != before[name]}
    assert changed == {"seed", "subseed", "outpath_grids"}


def test_the_other_extension_acts_in_no_variant(compared, runs, opts):
    add_downsampling(opts, 2.0)
    done = compared(names=["ToDo fast"])
    assert all(p.token_downsampling_factor == 1 for p in runs.processed)
    assert "sd-webui-token-downsampling is on: ToDo compare switches it off" in done.comments


def add_downsampling(opts, factor):
    for name in ("token_downsampling_factor", "token_downsampling_factor2"):
        opts.add_option(name, shared.OptionInfo(1.0, name))
    opts.token_downsampling_factor = factor


@pytest.mark.parametrize("is_img2img", [False, True])
def test_the_controls_are_those_of_the_api(compared, is_img2img):
    script = load_script("todo_compare").CompareScript()
    with gr.Blocks():
        controls = script.ui(is_img2img)
    assert [control.label for control in controls] == [
        "Presets to compare",
        "Difference maps",
        "Repeats",
    ]
    assert controls[0].choices == [FROM_PANEL, *BUILT_IN]
    assert len({control.elem_id for control in controls}) == 3


def test_the_table_is_read_from_the_answer(compared):
    text = controls.table_html(compared().js())
    assert text.count("<tr>") == 4
    assert "Hires pass, s" in text
    assert "ToMe paper" in text


def test_names_in_the_table_are_escaped(compared):
    answer = {"todo_compare": {"passes": ["hires"], "rows": [{"name": "<b>", "trouble": "failed: <i>"}]}}
    assert "<b>" not in controls.table_html(json.dumps(answer))
    assert "<i>" not in controls.table_html(json.dumps(answer))


@pytest.mark.parametrize("answer", ["", "{}", "not json", '{"infotexts": []}'])
def test_other_results_have_no_table(answer):
    assert controls.table_html(answer) == ""


def test_the_table_goes_under_the_webuis_line(compared):
    script, on = load_script("todo_compare").CompareScript(), {}
    script.on_after_component = lambda callback, *, elem_id: on.update({elem_id: callback})
    script.show(False)
    with gr.Blocks() as blocks:
        for elem_id, kind in (("html_log_txt2img", gr.HTML), ("generation_info_txt2img", gr.Textbox)):
            on[elem_id](type("OnComponent", (), {"component": kind(elem_id=elem_id)}))
    (event,) = blocks.config["dependencies"] if hasattr(blocks, "config") else blocks.dependencies
    target = blocks.blocks[event["outputs"][0]]
    assert target.elem_id == "html_log_txt2img_todo"
