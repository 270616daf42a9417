"""Jobs in which the WebUI puts another model in place: refiner, hires checkpoint, reload."""

import numpy as np
import pytest

from ..helpers import Refused, lengths, level_1, reduced

BOTH_PASSES = {"factor_1": 2, "passes": "all"}


def by_unet(events):
    """The UNet calls of these steps, one list for each UNet, in the order of their appearance."""
    calls = {}
    for event in events:
        for call in event["calls"]:
            calls.setdefault(call["unet"], []).append(call)
    return list(calls.values())


def assert_every_call_is_reduced(calls):
    pairs = [{tuple(pair) for pair in call["lengths"]} for call in calls]
    assert all({keys for queries, keys in pair if queries == max(pair)[0]} == {max(pair)[0] // 4} for pair in pairs)
    assert all(call["hooks"] for call in calls)


@pytest.mark.parametrize("loaded_at_once", [1, 2])
def test_a_refiner_of_another_config_is_reduced_from_its_first_step(webui, other_checkpoint, loaded_at_once):
    options = {"sd_checkpoints_limit": loaded_at_once, "hires_fix_refiner_pass": "first pass"}
    refiner = {"refiner_checkpoint": other_checkpoint, "refiner_switch_at": 0.5, "override_settings": options}
    result = webui.txt2img(BOTH_PASSES, **refiner)

    base, refined, *_ = by_unet(result.first)
    assert_every_call_is_reduced(base)
    assert_every_call_is_reduced(refined)
    assert result.hooks_left == 0
    assert np.array_equal(webui.txt2img().pixels, webui.baseline().pixels)


@pytest.mark.parametrize("hires_pass", ["second pass", "both passes"])
def test_a_refiner_in_the_hires_pass_is_reduced(webui, other_checkpoint, hires_pass):
    options = {"hires_fix_refiner_pass": hires_pass}
    refiner = {"refiner_checkpoint": other_checkpoint, "refiner_switch_at": 0.5, "override_settings": options}
    result = webui.txt2img({"factor_1": 2}, **refiner)

    assert reduced(result.first) == set()
    assert "Refiner" in result.infotext
    for calls in by_unet(result.hires):
        assert_every_call_is_reduced(calls)
    assert by_unet(result.hires)[-1][0]["unet"] != by_unet(result.first)[0][0]["unet"]
    assert result.hooks_left == 0


def test_a_hires_checkpoint_of_another_config_is_reduced(webui, other_checkpoint):
    result = webui.txt2img(BOTH_PASSES, hr_checkpoint_name=other_checkpoint)

    (first,), (hires,) = by_unet(result.first), by_unet(result.hires)
    assert first[0]["unet"] != hires[0]["unet"]
    assert_every_call_is_reduced(first)
    assert_every_call_is_reduced(hires)
    assert result.hooks_left == 0


def test_after_another_models_job_a_baseline_image_is_what_it_was(webui, other_checkpoint):
    request = {"hr_checkpoint_name": other_checkpoint}
    before = webui.baseline(**request)
    webui.txt2img(BOTH_PASSES, **request)
    assert np.array_equal(webui.txt2img(**request).pixels, before.pixels)


def test_a_switch_to_sdxl_is_planned_anew(webui, sdxl_checkpoint):
    """With a prompt of its own: Forge Neo gives the hires pass the first pass's text of an equal prompt, and fails."""
    result = webui.txt2img(BOTH_PASSES, hr_checkpoint_name=sdxl_checkpoint, hr_prompt="a dog")
    assert reduced(result.first) == {(256, 64)}
    assert reduced(result.hires) == {(256, 64)}, "the hires latent has 1,024 tokens, SDXL's finest attention 256"


def test_a_checkpoint_that_was_unloaded_and_loaded_again_is_reduced(webui):
    before = webui.txt2img({"factor_1": 2})
    webui.post("/sdapi/v1/unload-checkpoint")
    try:
        webui.post("/sdapi/v1/reload-checkpoint")
    except Refused as refused:
        if refused.status != 404:
            raise
        pytest.skip("this WebUI cannot reload a checkpoint by a request")
    after = webui.txt2img({"factor_1": 2})
    assert reduced(after.hires) == {(1024, 256)}
    assert np.array_equal(after.pixels, before.pixels)


def test_a_refiner_that_never_takes_over_changes_nothing(webui, other_checkpoint):
    result = webui.txt2img({"factor_1": 2}, refiner_checkpoint=other_checkpoint, refiner_switch_at=1.0)
    assert len(by_unet(result.events)) == 1
    assert level_1(result.hires) == 1024
    assert lengths(result.first) == lengths(webui.baseline().first)
