"""Compare on the double: what runs, what comes out, and what is kept when it is stopped or fails."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import gradio as gr
import numpy as np
import pytest
from modules import images, processing, script_callbacks, shared
from PIL import Image

from tests.models import LatentDiffusion, shallow_ldm_unet
from tests.todo_core.webui.webui_double import Processing, WebUI, load_script
from todo_core.settings import BUILT_IN
from todo_core.webui.compare import controls, runner
from todo_core.webui.compare.output import legend
from todo_core.webui.compare.request import FROM_PANEL
from todo_core.webui.compare.table import ComparisonRow, ComparisonTable
from todo_core.webui.generation import request


@dataclass(eq=True)
class Compared(Processing):
    """The WebUI's ``p`` before it has been run."""

    width: int = 96
    height: int = 64
    steps: int = 2
    seed: int = -1
    subseed: int = -1
    styles: tuple = ()
    override_settings: dict = field(default_factory=dict)
    do_not_save_grid: bool = False
    do_not_save_samples: bool = False
    hr_second_pass_steps: int = 0
    outpath_grids: str = ""


@dataclass(eq=True)
class ComparedImg2Img(Compared):
    init_images: tuple = (None,)
    enable_hr: bool = False


class Runs:
    """Stands in for ``process_images``: each call runs the always visible script on the double."""

    def __init__(self, script, model):
        self.webui, self.args, self.processed, self.fail = WebUI(script, model), (False,), [], {}

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
        more = {"subseed": p.subseed, "infotexts": [text] * count, **lists}
        return processing.Processed(p, pictures, p.seed, text, **more)


def picture(latent):
    values = ((latent[:3].numpy() + 3) / 6 * 255).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
    return Image.fromarray(values).resize((96, 64))


@pytest.fixture(scope="module")
def model():
    return LatentDiffusion(shallow_ldm_unet(), image_size=8)


@pytest.fixture
def runs(script, model, monkeypatch, opts):
    vars(opts).update(enable_pnginfo=True, grid_text_active_color="#000000")
    stand_in = Runs(script, model)
    monkeypatch.setattr(processing, "run", stand_in)
    return stand_in


@pytest.fixture
def compared(runs, tmp_path):
    """Run the script of the dropdown; returns the WebUI's Processed."""
    script = load_script("todo_compare").CompareScript()

    def run(p=None, names=("ToDo paper", "ToMe paper"), **more):
        p = p or Compared()
        p.outpath_grids = str(tmp_path)
        return script.run(p, list(names), **{"repeats": 1, "plain_steps": False, **more})

    return run


def told(done):
    """What the JSON of a result tells the page and the API."""
    return json.loads(done.js())["todo_compare"]


def rows(done):
    return told(done)["rows"]


def troubles(done):
    return [row["trouble"] for row in rows(done)]


def stop(name):
    return lambda: setattr(shared.state, name, True)


WARM_UPS = 3  # of the baseline and two presets


def during(run, step, action):
    """Let something happen in a step of a run, the first warm-up being run 0: each takes two steps in two passes."""
    count = iter(range(1000))
    script_callbacks.on_cfg_denoiser(lambda params: action() if next(count) == run * 4 + step else None)


def test_the_same_seed_runs_as_baseline_and_with_each_preset(compared, runs):
    p = Compared(steps=3)
    before = vars(p).copy()
    done = compared(p)
    warm, variants = runs.processed[:WARM_UPS], runs.processed[WARM_UPS:]
    assert {(w.steps, w.n_iter, w.hr_second_pass_steps, w.do_not_save_samples) for w in warm} == {(2, 1, 2, True)}
    ways = [{"enabled": False}, {"preset": "ToDo paper"}, {"preset": "ToMe paper"}]
    assert [request.overrides_of(each) for each in runs.processed] == ways * 2, "each first use is in the warm-up"
    assert [each.seed for each in variants] == [4, 4, 4], "the random seed is drawn once"
    masks = {"return_mask": False, "return_mask_composite": False}
    assert all(each.override_settings == masks for each in variants), "they would come between the images"
    changed = {name for name, value in vars(p).items() if before.get(name) != value}
    assert changed == {"seed", "subseed", "outpath_grids"}
    assert (len(done.images), len(done.infotexts), done.index_of_first_image) == (4, 4, 1)
    assert (len(done.all_seeds), len(done.all_prompts)) == (3, 3)
    assert done.infotexts[0] == done.info == "Seed: 4, Script: ToDo compare, ToDo compare: ToDo paper; ToMe paper"
    assert done.images[0].info["parameters"] == done.info
    assert done.infotexts[1] == "Seed: 4"
    assert "ToDo method: downsample, ToDo factor 1: 2" in done.infotexts[2]
    assert "ToDo method: similarity, ToDo target: all" in done.infotexts[3]


ROWS = [
    ComparisonRow("baseline", 2.5, 0.125, 1.0),
    ComparisonRow("a<b", 1.234, None, 2.0259, 0.00123, 29.1, 0.98765),
    ComparisonRow("c", 1.0, mse=0, ssim=1.0),
    ComparisonRow("d", trouble="failed: <i>"),
]
LABELS = [
    ["baseline", "2.50 ± 0.12 s"],
    ["a<b", "1.23 s, 2.03x", "MSE 0.0012, PSNR 29.1", "SSIM 0.9877"],
    ["c", "1.00 s", "identical"],
    ["d", "failed: <i>"],
]
HTML = (
    "<tr><th></th><th>First pass and Hires pass,&nbsp;s</th><th>speed</th><th>MSE</th><th>PSNR,&nbsp;dB</th>"
    "<th>SSIM</th></tr>",
    "<tr><th>baseline</th><td>2.50 ± 0.12</td><td>1.00x</td><td></td><td></td><td></td></tr>",
    "<tr><th>a&lt;b</th><td>1.23</td><td>2.03x</td><td>0.0012</td><td>29.1</td><td>0.9877</td></tr>",
    "<tr><th>c</th><td>1.00</td><td></td><td>0</td><td>equal</td><td>1.0000</td></tr>",
    '<tr><th>d</th><td colspan="5">failed: &lt;i&gt;</td></tr>',
)


def test_a_row_is_a_label_and_a_line_of_the_page():
    table = ComparisonTable(("first", "hires"), tuple(ROWS))
    assert [row.label() for row in ROWS] == LABELS
    answer = json.dumps({"todo_compare": table.to_dict()})
    assert tuple(re.findall("<tr>.*?</tr>", controls.table_html(answer))) == HTML


def test_a_pasted_grid_sets_the_presets_and_other_results_have_no_table():
    assert controls.pasted_presets({"ToDo compare": "ToDo paper; ToMe paper"})["value"] == ["ToDo paper", "ToMe paper"]
    assert controls.pasted_presets({}) is None
    assert {controls.table_html(answer) for answer in ("", "{}", "not json", '{"infotexts": []}')} == {""}


def test_the_upscale_button_tells_the_numbers_in_the_comments(compared):
    """The WebUI keeps the JSON of the image that is upscaled, and drops this answer's."""
    p = Compared()
    p.txt2img_upscale = True
    comments = compared(p).comments.splitlines()
    assert [line.split(": ")[0] for line in comments[-3:]] == ["baseline", "ToDo paper", "ToMe paper"]
    assert "SSIM" in comments[-1]
    assert "SSIM" not in compared().comments


def test_the_panels_settings_are_compared_whether_it_is_ticked_or_not(compared, runs):
    runs.args = (False, "similarity")
    done = compared(names=[FROM_PANEL])
    assert done.infotexts[1] == "Seed: 4", "the baseline's"
    assert "ToDo method: similarity" in done.infotexts[2]


def test_the_grid_has_a_column_for_each_and_the_maps_show_the_differences(compared, opts):
    done = compared()
    grid, baseline, fast, _ = done.images
    assert [lines[0] for lines in images.labels] == ["baseline", "ToDo paper", "ToMe paper"]
    assert grid.size == (3 * 96, 2 * 64)
    assert np.array_equal(grid.crop((0, 0, 96, 64)), baseline)
    assert np.array_equal(grid.crop((0, 64, 96, 128)), legend((96, 64)))
    assert np.array_equal(grid.crop((96, 0, 192, 64)), fast)
    differs = np.abs(np.asarray(baseline).astype(int) - np.asarray(fast)).max(axis=-1) > 0
    assert differs.any()
    assert np.array_equal(np.asarray(grid.crop((96, 64, 192, 128))).max(axis=-1) > 0, differs)
    assert compared(heat_maps=False).images[0].size == (3 * 96, 64)
    opts.img_max_size_mp = 0.01
    smaller = compared().images[0]
    assert 9_000 < smaller.width * smaller.height <= 10_000, "the WebUI's limit"


def test_batches_give_a_row_each_and_their_means(compared):
    done = compared(Compared(batch_size=2, n_iter=2), names=["ToDo paper"])
    assert done.images[0].size == (2 * 96, 8 * 64)
    assert len(done.images) == 1 + 2 * 4
    assert done.all_seeds == [4, 5, 6, 7] * 2
    row = rows(done)[1]
    for name in ("mse", "ssim"):
        assert row[name] == pytest.approx(np.mean([one[name] for one in row["images"]]))
    assert len({one["mse"] for one in row["images"]}) == 4


def test_where_nothing_is_or_can_be_saved_the_images_are_shown(compared, opts, tmp_path, monkeypatch):
    compared(Compared(do_not_save_grid=True), names=["ToDo paper"])
    opts.grid_save = False
    compared(names=["ToDo paper"])
    assert list(tmp_path.iterdir()) == []
    opts.grid_save = True
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError("no space left")))
    done = compared()
    assert len(done.images) == 4
    assert "no space left" in done.comments


def test_without_hires_fix_it_says_that_nothing_was_reduced(compared):
    done = compared(Compared(enable_hr=False), plain_steps=True)
    first, second, *_ = done.comments.splitlines()
    assert first == "ToDo compare: nothing was reduced in any variant. The lines below say why."
    assert second == "ToDo paper, ToMe paper: reduced nothing: hires fix is off"
    assert [(row["mse"], row["psnr"]) for row in rows(done)[1:]] == [(0, None)] * 2, "JSON has no infinity"
    assert rows(done)[1]["images"] == [{"mse": 0, "psnr": None, "ssim": 1}]
    assert told(done)["passes"] == ["first"]
    assert [lines[-1] for lines in images.labels[1:]] == ["identical"] * 2
    assert "<td>equal</td>" in controls.table_html(done.js())


@pytest.mark.parametrize(
    ("how", "when", "run", "step", "repeats", "expected", "ran"),
    [
        ("interrupted", "in", 1, 3, 1, ["", "cut short"], 2),
        ("skipped", "in", 1, 1, 1, ["", "cut short", ""], 3),
        ("stopping_generation", "in", 1, 1, 1, ["", ""], 2),
        ("interrupted", "in", 3, 1, 2, ["", "", ""], 4),
        # no hook on the denoiser sees it: its next call raises an InterruptedException at once, or there is none
        ("interrupted", "after", 0, 0, 1, ["cut short"], 1),
        ("interrupted", "after", 1, 2, 1, ["", "cut short"], 2),
        ("skipped", "after", 0, 2, 1, ["cut short", "", ""], 3),
    ],
)
def test_a_stop_keeps_what_is_done(compared, runs, how, when, run, step, repeats, expected, ran):
    p, steps, run = Compared(), iter(range(1000)), WARM_UPS + run
    if when == "in":
        during(run, step, stop(how))
    else:
        p.after_step = lambda _: stop(how)() if next(steps) == run * 4 + step else None
    done = compared(p, repeats=repeats)
    assert troubles(done) == expected
    assert len(runs.processed) == WARM_UPS + ran, "no further variant is begun"
    assert len(done.images) == 1 + len(expected)
    assert ("cut short" in done.comments) == ("cut short" in expected)


def test_an_interrupt_during_the_warm_up_gives_no_images(compared, runs):
    during(1, 0, stop("interrupted"))
    done = compared()
    assert done.images == []
    assert len(runs.processed) == 2, "no further variant is warmed up"
    assert "interrupted before the first image" in json.loads(done.js())["comments"]


def test_a_baseline_that_is_cut_short_is_shown_and_not_compared_with(compared):
    during(WARM_UPS, 0, stop("interrupted"))
    done = compared()
    assert "ToDo compare:" not in done.infotexts[0], "alone it names no presets"
    assert done.comments.splitlines() == ["baseline cut short"], "no variant has run"
    assert images.labels == [["baseline", "cut short"]]
    shared.state.interrupted = False
    during(WARM_UPS, 1, stop("skipped"))
    done = compared(plain_steps=True)
    assert troubles(done) == ["cut short", "", ""]
    assert all(row["seconds"] > 0 and row["mse"] is row["ratio"] is None for row in rows(done)[1:])


@pytest.mark.parametrize(
    ("failing", "repeats", "expected"),
    [
        ([1, 2, 6], 2, ["", ""]),  # the warm-ups, and the second round of a preset: its time alone
        ([3], 1, ["failed: out of memory", ""]),
        ([4], 1, ["", "failed: out of memory"]),
    ],
)
def test_a_failing_run_is_told_and_costs_no_other(compared, runs, failing, repeats, expected):
    runs.fail = dict.fromkeys(failing, RuntimeError("out of memory"))
    done = compared(names=["ToDo paper"], repeats=repeats)
    assert troubles(done) == expected
    assert ("failed: out of memory" in done.comments) == any(expected)
    assert len(done.images) == 1 + expected.count("")
    assert [row["spread"] is None for row in rows(done)] == [repeats == 1, True]


def test_where_every_variant_fails_the_webui_shows_the_error(compared, runs):
    runs.fail = {n: RuntimeError("out of memory") for n in (4, 5, 6)}
    with pytest.raises(RuntimeError, match="out of memory"):
        compared()


@pytest.mark.parametrize(
    ("names", "repeats", "word"),
    [
        ([], 1, "ToDo compare: Presets to compare is empty. Use at least one of the panel's settings, Balanced,"),
        (["no such"], 1, "ToDo compare: Preset: 'no such' is not possible"),
        (["ToDo paper"], 0, "Repeats: 0 is not possible"),
        (["ToDo paper"], 11, "Repeats: 11 is not possible"),
        (["ToDo paper"], "often", "Repeats: 'often' is not possible"),
    ],
)
def test_bad_values_are_a_message_before_the_first_image(compared, runs, names, repeats, word):
    done = compared(names=names, repeats=repeats)
    assert runs.processed == done.images == []
    assert word in done.comments
    assert word in json.loads(done.js())["comments"]


def test_a_request_may_leave_arguments_out_and_send_names_as_text(runs, tmp_path):
    """The WebUI's API hands over as many as were sent."""
    script = load_script("todo_compare").CompareScript()
    p = Compared(outpath_grids=str(tmp_path))
    assert "at least one" in script.run(p).comments
    done = script.run(p, " ToDo paper; ToMe paper;ToDo paper", True, 2.0, False)
    assert [row["name"] for row in rows(done)] == ["baseline", "ToDo paper", "ToMe paper"]
    assert len(runs.processed) == WARM_UPS + 2 * 3


@pytest.mark.parametrize("one_sampler", [False, True])
def test_rounds_are_interleaved_and_give_median_and_spread_of_the_models_calls(
    compared, runs, monkeypatch, one_sampler
):
    took = iter([*[1, 1, 1, 1], *[1, 1, 4, 4], *[1, 1, 1, 1], *[1, 1, 2, 2], *[1, 1, 1, 1], *[1, 1, 3, 3]])
    clock = [0.0, False]

    def now():
        clock[0], clock[1] = clock[0] + (next(took) if clock[1] else 0), not clock[1]
        return clock[0]

    monkeypatch.setattr("todo_core.webui.generation.pass_timer.time.perf_counter", now)
    done = compared(Compared(one_sampler=one_sampler), names=["ToDo paper"], repeats=3)
    variants = runs.processed[2:]
    assert [request.overrides_of(p) for p in variants] == [{"enabled": False}, {"preset": "ToDo paper"}] * 3
    assert [p.do_not_save_samples for p in variants] == [False] * 2 + [True] * 4
    baseline, fast = rows(done)
    assert (baseline["seconds"], baseline["spread"]) == (2, 0)
    assert (fast["seconds"], fast["spread"], fast["ratio"]) == (6, 2, 2 / 6)
    assert len(done.images) == 3
    assert "6.00 ± 2.00" in controls.table_html(done.js())


def test_plain_steps_are_repeated_too_and_once_where_two_presets_take_as_long(compared, runs, monkeypatch):
    monkeypatch.setattr(runner, "speeds", lambda variant, baseline: {} if variant is baseline else {"hires": 2})
    p, names = Compared(hr_second_pass_steps=10), ["ToDo paper", "ToMe paper"]
    done = compared(p, names=names, plain_steps=True, repeats=2)
    assert [row["plain"] for row in rows(done)] == ["", "5 plain steps", "5 plain steps", ""]
    variants = runs.processed[3:]
    assert [own.hr_second_pass_steps for own in variants] == [10] * 6 + [5] * 2
    assert [own.do_not_save_samples for own in variants[-2:]] == [False, True]
    during(WARM_UPS + 5, 0, stop("interrupted"))  # in the last run before them
    compared(Compared(hr_second_pass_steps=10), names=names, plain_steps=True, repeats=2)
    assert len(runs.processed) == 11 + 9, "none is begun"


CLOSEST = "Best for its time: ToDo paper, 1.33x and PSNR 48.1; 8 plain steps: 1.29x and 32.6."


@pytest.mark.parametrize(
    ("ours", "plain", "said"),
    [(1, 6, CLOSEST), (7, 1, "Plain steps are closer to the baseline than each variant in its time.")],
)
def test_beside_each_variant_run_plain_steps_that_take_its_time(
    compared, runs, monkeypatch, tmp_path, ours, plain, said
):
    """The hires pass takes 4 s of 10 steps, that of *ToDo paper* 3 s; its images are changed by so many grey levels."""
    p, own = Compared(hr_second_pass_steps=10), runner._keep
    seconds = {"baseline": 4.0, "ToDo paper": 3.0, "8 plain steps": 3.1}
    shift = {"baseline": 0, "ToDo paper": ours, "8 plain steps": plain}

    def keep(variant, *made):
        own(variant, *made)
        variant.seconds = [{"hires": seconds[variant.name]}]
        variant.pictures = [np.full((16, 16, 3), 100 + shift[variant.name], np.uint8)]

    monkeypatch.setattr(runner, "_keep", keep)
    done = compared(p, names=["ToDo paper"], plain_steps=True)
    assert [row["name"] for row in rows(done)] == [*seconds]
    assert [row["plain"] for row in rows(done)] == ["", "8 plain steps", ""]
    assert [(each.hr_second_pass_steps, request.overrides_of(each)) for each in runs.processed[2:]] == [
        (10, {"enabled": False}),
        (10, {"preset": "ToDo paper"}),
        (8, {"enabled": False}),
    ]
    assert p.hr_second_pass_steps == 10
    assert said == told(done)["verdict"]
    assert done.infotexts[0].endswith("ToDo compare: ToDo paper")
    assert f"<p>{said}</p>" in controls.table_html(done.js())
    saved = json.loads((tmp_path / "todo_compare-0000.json").read_text())
    assert saved.items() >= told(done).items()
    assert "ToDo factor 1: 2" in saved["infotexts"]["ToDo paper"]


@pytest.mark.parametrize(
    ("seconds", "spread", "said"),
    [
        ((0.76, 0.74), 0.21, "No verdict: the times differ by no more than their spread. "),
        ((4.0, 3.0), 0.51, "No verdict: "),
        ((4.0, 3.0), 0.49, "Best for its time: a"),
        ((4.0, 3.0), None, "Best for its time: a"),
    ],
)
def test_noise_names_no_winner(seconds, spread, said):
    baseline, ours = ({"seconds": each, "spread": spread, "ratio": seconds[0] / each} for each in seconds)
    plain = ours | {"mse": 0.01, "psnr": 20.0}
    named = {"baseline": baseline, "a": ours | {"mse": 0.001, "psnr": 30.0, "plain": "19 plain steps"}}
    table = ComparisonTable(["hires"], [ComparisonRow(k, **v) for k, v in (named | {"19 plain steps": plain}).items()])
    assert table.verdict.startswith(said)


@pytest.mark.parametrize(
    ("kind", "passes", "hires_steps", "seconds", "expected", "name"),
    [
        (Compared, "hires", 0, {"hires": 2}, (10, 5), "5 plain steps"),
        (Compared, "first", 0, {"first": 2}, (5, 10), "5 + 10 plain steps"),
        (Compared, "all", 6, {"first": 2, "hires": 3}, (5, 4), "5 + 4 plain steps"),
        (Compared, "all", 6, {"first": 5, "hires": 0.01}, (10, 1), "1 plain steps"),  # slower is no reason for more
        (ComparedImg2Img, "hires", 0, {"img2img": 2}, (5, 0), "5 plain steps"),
        (Compared, "hires", 0, {"hires": 3.9}, None, ""),
    ],
)
def test_plain_steps_of_the_reduced_passes(
    compared, runs, monkeypatch, kind, passes, hires_steps, seconds, expected, name
):
    """Each pass of the baseline takes 4 s."""
    runs.args, own = [{"passes": passes, "factor_1": 2}], runner._keep

    def keep(variant, *made):
        own(variant, *made)
        reduced = {} if request.overrides_of(variant.p) == {"enabled": False} else seconds
        variant.seconds = [dict.fromkeys(("first", "hires", "img2img"), 4.0) | reduced]

    monkeypatch.setattr(runner, "_keep", keep)
    done = compared(kind(steps=10, hr_second_pass_steps=hires_steps), [FROM_PANEL], plain_steps=True)
    assert [row["name"] for row in rows(done)[2:]] == ([name] if name else [])
    assert rows(done)[1]["plain"] == name
    assert told(done)["passes"] == [*seconds]
    p = runs.processed[-1]
    assert (p.steps, p.hr_second_pass_steps) == (expected or (10, hires_steps))


def test_progress_is_shown(compared):
    progress = []
    for run in (0, 2, 3):
        during(run, 0, lambda: progress.append((shared.state.job_count, shared.state.textinfo)))
    compared(Compared(n_iter=2))
    texts = ["ToDo compare: warming up"] * 2 + ["ToDo compare: baseline (round 1 of 1)"]
    assert progress == [(3 + 3 * 2, text) for text in texts]
    assert shared.state.textinfo is None


def test_the_other_extension_acts_in_no_variant(compared, runs, opts):
    opts.add_option("token_downsampling_factor", shared.OptionInfo(2.0, ""))
    done = compared(names=["ToDo paper"])
    assert all(p.token_downsampling_factor == 1 for p in runs.processed)
    assert "sd-webui-token-downsampling is on: ToDo compare switches it off" in done.comments


@pytest.mark.parametrize("is_img2img", [False, True])
def test_the_controls_are_those_of_the_api(compared, is_img2img):
    script = load_script("todo_compare").CompareScript()
    with gr.Blocks():
        controls = script.ui(is_img2img)
    assert [control.label for control in controls] == [
        "Presets to compare",
        "Difference maps",
        "Repeats",
        "Plain steps",
    ]
    assert [control.value for control in controls] == [["Balanced", "Fast", "ToMe paper"], True, 2.0, True]
    assert controls[0].choices == [FROM_PANEL, *BUILT_IN]
    tab = "img2img" if is_img2img else "txt2img"
    ids = [control.elem_id.removeprefix(f"todo_compare_{tab}_") for control in controls]
    assert ids == ["presets", "heat_maps", "repeats", "plain_steps"]


def test_the_table_goes_under_the_webuis_line(compared):
    script, on = load_script("todo_compare").CompareScript(), {}
    script.on_after_component = lambda callback, *, elem_id: on.update({elem_id: callback})
    script.show(False)
    with gr.Blocks() as blocks:
        for elem_id, kind in (("html_log_txt2img", gr.HTML), ("generation_info_txt2img", gr.Textbox)):
            on[elem_id](type("OnComponent", (), {"component": kind(elem_id=elem_id)}))
    (event,) = blocks.config["dependencies"] if hasattr(blocks, "config") else blocks.dependencies
    assert blocks.blocks[event["outputs"][0]].elem_id == "html_log_txt2img_todo"
