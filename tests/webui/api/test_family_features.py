"""Beside what the Forge family has built in: each feature acts, and the hires pass is reduced with it."""

import numpy as np
import pytest

from ..helpers import FACTOR_2, REDUCED, assert_reduced, latents, reduced

# title's beginning: (arguments, what the hires pass reduces more, request)
FEATURES = {
    "StyleAlign": ([True, 1.0], set(), {"batch_size": 2}),
    "PerturbedAttentionGuidance": ([True, 3.0, 0.0, 0.0, 1.0], set(), {}),
    "SelfAttentionGuidance": ([True, 0.5, 2.0, 1.0], set(), {"hr_cfg": 7}),
    "FreeU": ([True, 1.3, 1.4, 0.9, 0.2], set(), {}),
    "Kohya HRFix": ([True, 1, 2.0, 0.0, 1.0, False, "bicubic", "bicubic"], {(64, 16)}, {}),
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


def assert_composes(webui, feature, hires=frozenset(), **request):
    """The feature acts; the first pass is its own, the hires pass is reduced, the next image is the feature's again."""
    request = {"alwayson_scripts": feature, **request}
    plain = webui.baseline(**{name: value for name, value in request.items() if name != "alwayson_scripts"})
    acts = latents(webui.baseline(**request).events) != latents(plain.events)
    assert acts, "it does nothing to this checkpoint; FreeU needs layers with 2 or 4 times the first channels"
    result = assert_reduced(webui, FACTOR_2, REDUCED | hires, **request)
    assert all(reduced([step]) for step in result.hires)


@pytest.mark.parametrize("feature", FEATURES)
def test_the_hires_pass_is_reduced_with_the_feature(webui, args_of, feature):
    args, more, request = FEATURES[feature]
    assert_composes(webui, args_of(feature, args), more, **request)


def test_layers_that_hypertile_tiles_are_left_alone_and_named(webui, args_of):
    request = {"alwayson_scripts": args_of("HyperTile", [True, 128, 1, 0, False]), "width": 128, "height": 128}
    tiled, result = webui.baseline(**request), webui.txt2img(FACTOR_2, **request)
    assert latents(tiled.events) != latents(webui.baseline(width=128, height=128).events)
    assert reduced(result.hires) in ({(256, 1024)}, set())
    assert "level 1 is not reduced: its queries are split into tiles" in result.comments
    assert np.array_equal(result.pixels, tiled.pixels)


def test_never_oom_moves_the_model_out_and_it_is_reduced_again(webui, args_of):
    expected = webui.txt2img(FACTOR_2)
    for args in ([True, True], [False, False]):
        result = webui.txt2img(FACTOR_2, alwayson_scripts=args_of("Never OOM", args))
        assert reduced(result.hires) == REDUCED
        assert latents(result.events[:1]) == latents(expected.events[:1])
    assert np.array_equal(result.pixels, expected.pixels)


@pytest.mark.parametrize("module", ["reference_only", "None"], ids=["reference_only", "a ControlNet"])
def test_controlnet(webui, args_of, module):
    models = [name for name in webui.get("/controlnet/model_list")["model_list"] if name != "None"]
    if module == "None" and not models:
        pytest.skip("needs a model in ControlNet's folder")
    model = models[0] if module == "None" else "None"
    image = webui.baseline().base64_images[0]
    unit = {"enabled": True, "module": module, "model": model, "image": image, "weight": 1.0}
    assert_composes(webui, args_of("controlnet", [unit]))
