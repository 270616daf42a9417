"""The infotext tells what ran, and only that; the comments tell why nothing did."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ..helpers import NOTHING_PREDICTED, difference, reduced, todo_keys

SIMILARITY = {"method": "similarity", "ratio_1": 0.5}


def test_only_values_other_than_the_defaults_are_written(webui):
    result = webui.txt2img({"factor_1": 2, "factor_2": 1, "phase": "rotate", "end": 0.5})
    assert (
        todo_keys(result.infotext)
        == {"ToDo method": "downsample", "ToDo factor 1": "2", "ToDo end": "0.5"} | NOTHING_PREDICTED
    )


def test_the_version_is_written_where_something_was_reduced(webui):
    from todo_core import __version__

    assert f"ToDo version: {__version__}" in webui.txt2img({"factor_1": 2}).infotext
    assert "ToDo version" not in webui.txt2img({"factor_1": 1, "factor_2": 1}).infotext


def test_the_comment_tells_tokens_and_steps(webui):
    result = webui.txt2img({"factor_1": 2, "end": 0.5})
    assert (
        "ToDo reduced the hires pass: level 1 from 1,024 to 256 tokens (downsample) in 2 of 4 steps" in result.comments
    )


def test_without_hires_nothing_is_written_and_the_comment_says_why(webui):
    result = webui.txt2img({"factor_1": 2}, enable_hr=False)
    assert todo_keys(result.infotext) == {}
    assert "hires fix is off" in result.comments


def test_settings_of_a_level_that_is_not_reduced_are_not_written(webui):
    result = webui.txt2img({"factor_1": "auto", "factor_2": 2})
    assert todo_keys(result.infotext) == {"ToDo method": "downsample", "ToDo factor 2": "2"} | NOTHING_PREDICTED
    result = webui.txt2img({"factor_1": 2, "factor_2": 1.0})
    assert todo_keys(result.infotext) == {"ToDo method": "downsample", "ToDo factor 1": "2"} | NOTHING_PREDICTED


def test_a_method_that_never_took_over_is_not_written(webui):
    settings = {"factor_1": 2, "start": 0.0, "end": 0.99, "afterwards": "similarity", "ratio_1": 0.25}
    result = webui.txt2img(settings)
    assert (
        todo_keys(result.infotext)
        == {"ToDo method": "downsample", "ToDo factor 1": "2", "ToDo end": "0.99"} | NOTHING_PREDICTED
    )


def test_each_methods_own_steps_are_told_where_another_took_over(webui):
    """The method that took over did not act in all the steps."""
    settings = {"factor_1": 2, "end": 0.5, "afterwards": "similarity", "ratio_1": 0.25}
    result = webui.txt2img(settings)
    assert todo_keys(result.infotext)["ToDo afterwards"] == "similarity"
    assert "1,024 to 256 tokens (downsample)" in result.comments
    assert "1,024 to 768 tokens (similarity)" in result.comments


def test_a_window_that_no_step_falls_into_is_told(webui):
    result = webui.txt2img({"factor_1": 2, "start": 0.9, "end": 0.95})
    assert todo_keys(result.infotext) == {}
    assert "ToDo reduced nothing in the hires pass: no step is between Start and End" in result.comments


@pytest.mark.parametrize("settings", [SIMILARITY, {"factor_1": 2, "phase": "rotate"}], ids=["similarity", "rotate"])
def test_an_image_of_a_batch_is_the_image_of_its_seed_alone(webui, settings):
    short = {"steps": 2, "hr_second_pass_steps": 2}
    batch = webui.txt2img(settings, batch_size=2, n_iter=2, **short)
    control = webui.baseline(batch_size=2, n_iter=2, **short)
    seeds = batch.info["all_seeds"]
    assert len(seeds) == 4
    for infotext in batch.info["infotexts"][-4:]:
        assert todo_keys(infotext)["ToDo method"] == settings.get("method", "downsample")
    for image, plain, seed in zip(batch.pixels[-4:], control.pixels[-4:], seeds, strict=True):
        alone, plain_alone = webui.txt2img(settings, seed=seed, **short), webui.baseline(seed=seed, **short)
        noise = np.abs(plain - plain_alone.pixels[0]).mean()
        assert np.abs(image - alone.pixels[0]).mean() <= 2 * noise + 0.1
        assert np.abs(image - plain).mean() > 0.1, "it is reduced"


def test_one_seed_of_their_own_serves_all_images(webui):
    result = webui.txt2img({**SIMILARITY, "seed": 5})
    assert todo_keys(result.infotext)["ToDo seed"] == "5"
    assert difference(result, webui.txt2img({**SIMILARITY, "seed": 6})) > 0


METHODS = {
    "similarity": (SIMILARITY, {(1024, 512)}),
    "cluster": ({"method": "cluster", "ratio_1": 0.75}, {(1024, 256)}),
    "mean of each cell": ({"factor_1": 2, "resample": "bilinear"}, {(1024, 256)}),
    "maximum of each cell": ({"factor_1": 4, "resample": "max"}, {(1024, 64)}),
    "fixed position": ({"factor_1": 2, "phase": "fixed"}, {(1024, 256)}),
    "a factor that does not divide the grid": ({"factor_1": 3}, {(1024, 11 * 11), (1024, 11 * 10), (1024, 10 * 11)}),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_reduces_on_the_webui(webui, method):
    settings, expected = METHODS[method]
    result = webui.txt2img(settings)
    assert reduced(result.hires) == expected
    assert difference(result, webui.baseline()) > 0


@pytest.mark.parametrize("method", [{"factor_1": 2}, SIMILARITY, {"method": "cluster", "ratio_1": 0.75}])
def test_whole_modules_shrink_queries_too(webui, method):
    result = webui.txt2img({**method, "target": "all", "mlp": True})
    expected = 512 if method == SIMILARITY else 256
    finest = {tuple(call["lengths"][0]) for step in result.hires for call in step["calls"]}
    assert finest == {(expected, expected)}
    assert todo_keys(result.infotext)["ToDo target"] == "all"
    assert todo_keys(result.infotext)["ToDo mlp"] == "True"


@pytest.fixture
def image(webui):
    return webui.baseline(enable_hr=False).base64_images[0]


def test_img2img_is_reduced(webui, image):
    result = webui.img2img(image, {"factor_1": 2}, width=256, height=256)
    assert reduced(result.events) == {(1024, 256)}
    assert todo_keys(result.infotext) == {"ToDo method": "downsample", "ToDo factor 1": "2"} | NOTHING_PREDICTED
    assert "ToDo reduced the img2img pass" in result.comments


@pytest.fixture
def mask():
    """White where the image is to be painted anew."""
    picture = Image.new("L", (128, 128))
    picture.paste(255, (32, 32, 96, 96))
    png = io.BytesIO()
    picture.save(png, "PNG")
    return base64.b64encode(png.getvalue()).decode()


@pytest.mark.parametrize("whole_picture", [True, False], ids=["whole picture", "only masked"])
def test_inpainting_is_reduced(webui, image, mask, whole_picture):
    inpaint = {"mask": mask, "inpainting_fill": 1, "inpaint_full_res": not whole_picture}
    result = webui.img2img(image, {"factor_1": 2}, **inpaint)
    assert reduced(result.events) == {(256, 64)}
    assert "ToDo method" in todo_keys(result.infotext)
