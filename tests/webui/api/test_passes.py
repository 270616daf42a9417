"""Requests in one table: what each pass reduces, what the user is told, and what stands in the infotext."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ..helpers import FACTOR_2, NOTHING_PREDICTED, REDUCED, assert_reduced, difference, level_1, reduced, todo_keys

# samplers of one and of two UNet calls a step, with and without noise of their own, by sigma and by timestep
SAMPLERS = ["Euler a", "DPM++ 2M", "Heun", "DPM++ SDE", "DDIM", "LCM", "UniPC"]
ENDS_EARLY = ["DDIM"]  # the WebUI's total counts two steps of an img2img pass that are never run
ATTENTIONS = ["Automatic", "sdp-no-mem", "sdp", "sub-quadratic", "V1", "InvokeAI", "Doggettx", "None"]
SIMILARITY, HALF = {"method": "similarity", "ratio_1": 0.5}, {(256, 128)}
OURS = {"ToDo method": "downsample", "ToDo factor 1": "2"} | NOTHING_PREDICTED
ONE_STEP = {"steps": 1, "hr_second_pass_steps": 1}
# two by two tiles in the hires pass, at the finest attention
TILED = {"hypertile_enable_unet": True, "hypertile_max_tile_unet": 128, "hypertile_swap_size_unet": 0}
LARGE = {"width": 128, "height": 128}


def case(settings, *hires, **more):
    """A row: settings, what the hires pass reduces if not the usual, and more for ``assert_reduced``."""
    return {"todo": settings, "hires": set(hires) or REDUCED, **more}


CASES = {
    "each level has its own factor": case({"factor_1": 4, "factor_2": 2}, (256, 16), (64, 16)),
    "both passes": case(FACTOR_2 | {"passes": "all"}, first={(64, 16)}, keys=OURS | {"ToDo passes": "all"}),
    "only values other than the defaults are written": case(
        {"factor_1": 2, "factor_2": 1, "phase": "rotate", "end": 0.5},
        told=["ToDo reduced the hires pass: level 1 from 256 to 64 tokens (downsample) in 2 of 4 steps"],
        keys=OURS | {"ToDo end": "0.5"},
    ),
    "a level that is not reduced is not written": case(
        {"factor_1": "auto", "factor_2": 2},
        (64, 16),
        keys={"ToDo method": "downsample", "ToDo factor 2": "2"} | NOTHING_PREDICTED,
    ),
    "a method that never took over is not written": case(
        FACTOR_2 | {"end": 0.99, "afterwards": "similarity", "ratio_1": 0.25}, keys=OURS | {"ToDo end": "0.99"}
    ),
    "auto above the trained size, oblong": case(
        {}, (9600, 2400), height=96, hr_resize_x=640, hr_resize_y=960, **ONE_STEP
    ),
    "similarity": case(SIMILARITY, *HALF),
    "cluster": case({"method": "cluster", "ratio_1": 0.75}),
    "mean of each cell": case(FACTOR_2 | {"resample": "bilinear"}),
    "maximum of each cell": case({"factor_1": 4, "resample": "max"}, (256, 16)),
    "fixed position": case(FACTOR_2 | {"phase": "fixed"}),
    "two prompts": case(SIMILARITY, *HALF, prompt="a cat AND a dog", batch_size=2),
    "three prompts": case(SIMILARITY, *HALF, prompt="a cat AND a dog :0.5 AND a house", batch_size=2),
    "a long prompt": case(SIMILARITY, *HALF, prompt="a cat, " * 60),
    "another upscaler": case(FACTOR_2, hr_upscaler="Lanczos"),
    "steps without uncond": case(
        SIMILARITY, *HALF, batch_size=2, s_min_uncond=4.0, override_settings={"s_min_uncond_all": True}
    ),
    "tiles as large as the image": case(FACTOR_2, override_settings=TILED, keys=OURS),
    "level 1 in tiles": case(
        {"factor_1": 2, "factor_2": 2},
        (256, 64),
        override_settings=TILED | {"hypertile_max_depth_unet": 0},
        told=["level 1 is not reduced: HyperTile", "level 2 from 256 to 64"],
        **LARGE,
    ),
}
OF_A1111 = {
    option: case(
        {"factor_1": 2, "factor_2": 2},
        (64, 16),  # the WebUI merges level 1 only
        override_settings={option: 0.5},
        told=["level 1 is not reduced: its keys are not whole grids of 256 tokens"],
    )
    for option in ("token_merging_ratio", "token_merging_ratio_hr")
}
OF_FORGE = {  # it merges the queries alone
    "token merging": case(
        FACTOR_2, (128, 64), override_settings={"token_merging_ratio_hr": 0.5}, told=["level 1 from 256 to 64"]
    )
}
NOTHING = {
    "hires fix is off": case({}, enable_hr=False),
    "nothing to reduce at 128 x 128: this model was trained at 512 x 512.": case({"factor_1": "auto", "interval": 1}),
    "level 1 is not reduced: HyperTile splits it into tiles": case(FACTOR_2, override_settings=TILED, **LARGE),
    "ToDo reduced nothing in the hires pass: no step is between Start and End": case(
        FACTOR_2 | {"start": 0.9, "end": 0.95}
    ),
}


@pytest.mark.parametrize("name", [*CASES, *OF_A1111, *OF_FORGE])
def test_requests(webui, name):
    if webui.family not in ("a1111" if name in OF_A1111 else "forge" if name in OF_FORGE else webui.family):
        pytest.skip("another family merges tokens in another way")
    row = (CASES | OF_A1111 | OF_FORGE)[name]
    if "hr_upscaler" in row:
        webui.need_upscaler(row["hr_upscaler"])
    result = assert_reduced(webui, **row)
    assert "s_min_uncond" not in row or {call["rows"] for call in result.calls} >= {2}
    assert ("HyperTile" in result.comments) == (name == "level 1 in tiles")


@pytest.mark.parametrize("why", NOTHING)
def test_where_nothing_is_reduced_the_user_is_told_why(webui, why):
    row = NOTHING[why] | {"hires": set(), "told": [why], "keys": {}}
    result = assert_reduced(webui, **row)
    assert "ToDo" not in result.infotext
    assert row.get("width") != 128 or level_1(result.hires) == 1024 // 4, "it is tiled"


@pytest.mark.parametrize("layout", ["sd1", "sdxl"])
def test_the_usual_request(webui, request, layout):
    """SDXL has no attention at the latent's own size."""
    sdxl = layout == "sdxl" and {"sd_model_checkpoint": request.getfixturevalue("sdxl_checkpoint")}
    hires = {(64, 16)} if sdxl else REDUCED
    result = assert_reduced(webui, hires=hires, keys=OURS, override_settings=sdxl or {})
    assert min(call["hooks"] for step in result.hires for call in step["calls"]) > 0
    from todo_core import __version__

    assert f"ToDo version: {__version__}" in result.infotext
    assert np.array_equal(webui.txt2img(FACTOR_2, override_settings=sdxl or {}).pixels, result.pixels)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_only_the_steps_inside_the_window_are_reduced(webui, sampler):
    window = {"factor_1": 2, "start": 0.25, "end": 0.75}
    result = webui.txt2img(window, sampler_name=sampler, hr_second_pass_steps=8, denoising_strength=1.0)

    never_made = 2 if sampler == "DDIM" and len(result.hires) == result.hires[0]["total"] - 2 else 0  # but counted
    inside = [0.25 <= step["step"] / (step["total"] - never_made) < 0.75 for step in result.hires]
    assert [bool(reduced([step])) for step in result.hires] == inside
    assert not inside[0]
    assert any(inside)
    assert not inside[-1] or sampler in ENDS_EARLY
    assert reduced(result.first) == set()


def test_odd_and_oblong_sizes_keep_every_second_row_and_column(webui):
    result = webui.txt2img(FACTOR_2, width=72, height=104, hr_scale=1.5)
    if level_1(result.hires) % 64 == 0:
        pytest.skip("this WebUI makes sizes of hires fix multiples of 64 pixels")
    assert level_1(result.hires) == 13 * 19
    assert reduced(result.hires) <= {(13 * 19, rows * columns) for rows in (6, 7) for columns in (9, 10)}
    assert len(reduced(result.hires)) > 1, "the position moves"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_of_the_webui_is_reduced_and_gives_the_same_image(webui, attention):
    result = webui.txt2img(FACTOR_2, override_settings={"cross_attention_optimization": attention})
    assert reduced(result.hires) == REDUCED
    assert difference(result, webui.txt2img(FACTOR_2)) < 1


@pytest.mark.parametrize("method", [FACTOR_2, SIMILARITY, {"method": "cluster", "ratio_1": 0.75}])
def test_whole_modules_shrink_queries_too(webui, method):
    result = webui.txt2img({**method, "target": "all", "mlp": True})
    kept = 128 if method == SIMILARITY else 64
    assert {tuple(call["lengths"][0]) for step in result.hires for call in step["calls"]} == {(kept, kept)}
    assert todo_keys(result.infotext).items() >= {"ToDo target": "all", "ToDo mlp": "True"}.items()


def test_an_image_of_the_second_batch_is_the_image_of_its_seed_alone(webui):
    todo, short = {**SIMILARITY, "phase": "rotate"}, {"steps": 2, "hr_second_pass_steps": 2}
    batch, control = (webui.txt2img(each, batch_size=2, n_iter=2, **short) for each in (todo, None))
    seed = batch.info["all_seeds"][-1]
    assert todo_keys(batch.info["infotexts"][-1])["ToDo method"] == "similarity"
    alone, plain = webui.txt2img(todo, seed=seed, **short), webui.baseline(seed=seed, **short)
    noise = np.abs(control.pixels[-1] - plain.pixels[0]).mean()
    assert np.abs(batch.pixels[-1] - alone.pixels[0]).mean() <= 2 * noise + 0.1
    assert np.abs(batch.pixels[-1] - control.pixels[-1]).mean() > 0.1, "it is reduced"


def test_one_seed_of_their_own_serves_all_images(webui):
    five, six = (webui.txt2img({**SIMILARITY, "seed": seed}) for seed in (5, 6))
    assert todo_keys(five.infotext)["ToDo seed"] == "5"
    assert difference(five, six) > 0


@pytest.mark.parametrize("whole_picture", [True, False], ids=["whole picture", "only masked"])
def test_inpainting_is_reduced(webui, whole_picture):
    picture, png = Image.new("L", (64, 64)), io.BytesIO()
    picture.paste(255, (16, 16, 48, 48))  # white where the image is to be painted anew
    picture.save(png, "PNG")
    inpaint = {"mask": base64.b64encode(png.getvalue()).decode(), "inpaint_full_res": not whole_picture}
    image = webui.baseline(enable_hr=False).base64_images[0]
    result = webui.img2img(image, FACTOR_2, inpainting_fill=1, **inpaint)
    assert reduced(result.events) == {(64, 16)}
    assert "ToDo method" in todo_keys(result.infotext)
    assert "ToDo reduced the img2img pass" in result.comments


# other layouts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "side"), [(0, 512), (1, 768)], ids=["noise", "v-prediction"])
def test_sd2_has_the_trained_size_of_its_kind(request, webui, number, side):
    """Forge knows v-prediction only from a yaml beside the checkpoint."""
    names = request.config.getoption("--webui-sd2-checkpoints") or pytest.skip("needs --webui-sd2-checkpoints")
    chosen = {"override_settings": {"sd_model_checkpoint": names.split(",")[number]}, **ONE_STEP}
    assert_reduced(webui, {}, set(), told=[f"this model was trained at {side} x {side}"], **chosen)
    finest = (side * 5 // 4 // 8) ** 2
    enlarged = {"hr_resize_x": side * 5 // 4, "hr_resize_y": side * 5 // 4}
    assert_reduced(webui, {}, {(finest, finest // 4)}, **enlarged, **chosen)


def test_auto_of_sdxl_counts_from_1024_pixels(webui, sdxl_checkpoint):
    """1280 px is 1.25 times SDXL's 1024. Its level 1 lies at half the latent."""
    chosen = {"override_settings": {"sd_model_checkpoint": sdxl_checkpoint}, **ONE_STEP}
    assert_reduced(webui, {}, {(6400, 1600)}, hr_resize_x=1280, hr_resize_y=1280, **chosen)


def test_a_transformer_is_named_and_its_image_is_the_baselines(request, webui):
    checkpoint = request.config.getoption("--webui-transformer-checkpoint") or pytest.skip("needs such a checkpoint")
    chosen = {"override_settings": {"sd_model_checkpoint": checkpoint}, **ONE_STEP}
    baseline, result = webui.baseline(**chosen), webui.txt2img(FACTOR_2, **chosen)
    assert "ToDo cannot reduce" in result.comments
    assert "it is not a UNet of SD 1, SD 2 or SDXL" in result.comments
    assert np.array_equal(result.pixels, baseline.pixels)
    assert "ToDo" not in result.infotext
