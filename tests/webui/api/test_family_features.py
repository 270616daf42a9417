"""Beside what the Forge family has built in: each feature acts, and the hires pass is reduced with it."""

import numpy as np
import pytest

from ..helpers import reduced

FACTOR_2 = {"factor_1": 2}
REDUCED = {(1024, 256)}
# title's beginning: (arguments, request)
FEATURES = {
    "StyleAlign": ([True, 1.0], {"batch_size": 2}),
    "PerturbedAttentionGuidance": ([True, 3.0, 0.0, 0.0, 1.0], {}),
    "SelfAttentionGuidance": ([True, 0.5, 2.0, 1.0], {"hr_cfg": 7}),
    "FreeU": ([True, 1.3, 1.4, 0.9, 0.2], {}),
}


@pytest.fixture
def args_of(webui):
    """A function from the beginning of a script's title and its arguments to the request that switches it on."""
    if webui.family != "forge":
        pytest.skip("built into the Forge family")
    scripts = [script["name"] for script in webui.get("/sdapi/v1/script-info") if not script["is_img2img"]]

    def switched_on(beginning, args):
        title = next((name for name in scripts if name.startswith(beginning.lower())), None)
        if title is None:
            pytest.skip(f"this WebUI has no {beginning}")
        return {title: {"args": args}}

    return switched_on


def generated(webui, feature, todo=None, **request):
    """An image with the feature; ``todo`` None: without ToDo."""
    ours = {"ToDo": {"args": [todo]}} if todo else {}
    result = webui.txt2img(alwayson_scripts={**feature, **ours}, **request)
    del result.base64_images[request.get("batch_size", 1) :]  # ControlNet adds its own
    return result


def latents(events):
    return [step["latent"] for step in events]


def assert_composes(webui, feature, expected=REDUCED, **request):
    """The first pass is the feature's own, the hires pass is reduced, and the next image is the feature's again."""
    before = generated(webui, feature, **request)
    result = generated(webui, feature, FACTOR_2, **request)
    assert latents(result.first) == latents(before.first)
    assert result.hires[0]["latent"] == before.hires[0]["latent"]
    assert all(reduced([step]) == expected for step in result.hires)
    assert reduced(result.first) == set()
    assert result.pixels.std() > 5
    assert not np.array_equal(result.pixels, before.pixels)
    assert np.array_equal(generated(webui, feature, **request).pixels, before.pixels)
    return before


@pytest.mark.parametrize("feature", FEATURES)
def test_the_hires_pass_is_reduced_with_the_feature(webui, args_of, feature):
    args, request = FEATURES[feature]
    before = assert_composes(webui, args_of(feature, args), **request)
    acts = latents(before.events) != latents(webui.baseline(**request).events)
    assert acts, f"{feature} does nothing to this checkpoint; FreeU needs layers with 2 or 4 times the first channels"


def test_the_smaller_grid_of_kohya_hrfix_is_reduced_as_well(webui, args_of):
    feature = args_of("Kohya HRFix", [True, 1, 2.0, 0.0, 1.0, False, "bicubic", "bicubic"])
    before = assert_composes(webui, feature, REDUCED | {(256, 64)})
    assert latents(before.events) != latents(webui.baseline().events), "the feature acts"


def test_layers_that_hypertile_tiles_are_left_alone_and_named(webui, args_of):
    feature = args_of("HyperTile", [True, 128, 1, 0, False])
    tiled = generated(webui, feature)
    assert latents(tiled.events) != latents(webui.baseline().events)
    result = generated(webui, feature, FACTOR_2)
    assert reduced(result.hires) == {(256, 1024)} or reduced(result.hires) == set()
    assert "level 1 is not reduced: its queries are split into tiles" in result.comments
    assert np.array_equal(result.pixels, tiled.pixels)


def test_never_oom_moves_the_model_out_and_it_is_reduced_again(webui, args_of):
    expected = webui.txt2img(FACTOR_2)
    for feature in (args_of("Never OOM", [True, True]), args_of("Never OOM", [False, False])):
        result = generated(webui, feature, FACTOR_2)
        assert reduced(result.hires) == REDUCED
        assert result.events[0]["latent"] == expected.events[0]["latent"]
    assert np.array_equal(result.pixels, expected.pixels)


def test_reference_only_is_reduced(webui, args_of):
    image = webui.baseline().base64_images[0]
    unit = {"enabled": True, "module": "reference_only", "model": "None", "image": image, "weight": 1.0}
    feature = args_of("controlnet", [unit])
    before = assert_composes(webui, feature)
    assert latents(before.events) != latents(webui.baseline().events), "the feature acts"


def test_the_pass_is_reduced_beside_a_controlnet(webui, args_of):
    models = [name for name in webui.get("/controlnet/model_list")["model_list"] if name != "None"]
    if not models:
        pytest.skip("needs a model in ControlNet's folder")
    unit = {"enabled": True, "module": "None", "model": models[0], "image": webui.baseline().base64_images[0]}
    before = assert_composes(webui, args_of("controlnet", [unit]))
    assert latents(before.events) != latents(webui.baseline().events), "the model acts"
