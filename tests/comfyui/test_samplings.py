"""The nodes on a real ComfyUI beside what the contract says: its samplers, settings, other nodes and graphs."""

import numpy as np
import pytest

from todo_core.comfyui.inputs import REST

from .helpers import DEFAULTS, Graph, add_todo, sample, text_to_image

WHOLE, REDUCED = (64, 64), (64, 16)  # at 64 x 64: level 1 has 8 x 8 tokens
OURS = {"factor_1": 2, "interval": 1}
# a random model changes the image much in a step, and ToDo predicts only where it could be the same image
SMALL_STEPS = {"steps": 6, "denoise": 0.3}


def differ(one, other):
    return [not np.array_equal(a, b) for a, b in zip(one.latents, other.latents, strict=True)]


@pytest.fixture
def run(comfyui, seed):
    """A function that runs a graph of ``text_to_image``; a black or flat image proves nothing."""
    runs = iter(range(99))

    def run(*todo, **more):
        result = comfyui.run(text_to_image(comfyui, *todo, **{"seed": seed, "name": str(next(runs)), **more}))
        assert result.ok, result.error
        assert result.latents
        assert all(latent.std() > 0.1 for latent in result.latents)
        return result

    return run


def assert_reduced(run, settings=OURS, expected=(REDUCED,), **more):
    """One image: what each call reduces; the image differs from the baseline, which is the same afterwards."""
    plain, reduced, again = (run(todo, **more) for todo in (None, settings, None))
    assert {*plain.level_1()} == {(tokens, tokens) for tokens, _ in plain.level_1()}
    calls = reduced.level_1()
    assert calls == list(expected) * (len(calls) // len(expected))
    assert {*differ(plain, reduced)} == {True}
    assert {*differ(plain, again)} == {False}
    return plain, reduced


def test_a_factor_of_1_gives_the_baseline_to_the_bit(run):
    assert differ(run(None), run({"factor_1": 1, "interval": 1})) == [False]


def test_an_image_of_a_batch_is_reduced_as_its_neighbour(run):
    assert len(assert_reduced(run, batch=2)[1].latents) == 2


@pytest.mark.parametrize("sampler", ["dpmpp_2m", "dpmpp_sde"])
def test_samplers(run, sampler):
    calls = run(OURS | {"end": 0.5}, sampler_name=sampler).level_1()
    assert {*calls} == {REDUCED, WHOLE}
    assert calls == sorted(calls), "the window is one piece"


def test_an_odd_grid(run):
    """23 x 17 tokens: every second of them, at a position that moves."""
    calls = run(OURS, size=(136, 184)).level_1()
    assert all(tokens == 391 and keys <= 108 for tokens, keys in calls)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "cluster"},
        {"method": "similarity", "target": "all", "crossattn": True, "mlp": True},
        {"resample": "bicubic"},
        {"window": "noise"},
        {"factor_2": 2},
        {"seed": 5, "method": "similarity"},
    ],
    ids=str,
)
def test_settings(run, settings):
    one, other = run(OURS | settings), run(OURS | settings)
    assert all(tokens > keys for tokens, keys in one.level_1())
    assert differ(one, other) == [False], "an equal seed gives an equal image"


def test_the_api_has_a_value_for_each_input_of_the_second_node():
    assert {*DEFAULTS} == {*REST}


def test_deep_transformers_are_predicted_between_steps(run):
    plain, predicted = run(None, **SMALL_STEPS), run({"factor_1": 1, "interval": 2}, **SMALL_STEPS)
    assert all(plain.deep())
    assert predicted.deep()[:3] == [True, True, False]
    assert predicted.deep()[-1]
    assert differ(plain, predicted) == [True]
    assert np.abs(plain.latents[0] - predicted.latents[0]).mean() < plain.latents[0].std()


WITHOUT_NOISE = ["dpmpp_2m", "lms", "uni_pc", "uni_pc_bh2", "ddim", "deis", "ipndm", "ipndm_v", "res_multistep"]
WITHOUT_NOISE += ["gradient_estimation", "euler_cfg_pp", "dpmpp_2m_cfg_pp", "res_multistep_cfg_pp"]
WITHOUT_NOISE += ["gradient_estimation_cfg_pp"]
PREDICTS = {"factor_1": 1, "interval": 2, "predict": "whole"}


@pytest.mark.parametrize("sampler", WITHOUT_NOISE)
def test_whole_steps_are_predicted_with_samplers_that_add_no_noise(run, sampler):
    plain, predicted = (run(todo, sampler_name=sampler, **SMALL_STEPS) for todo in (None, PREDICTS))
    assert predicted.deep() == [True, True, True, False, True, True]
    assert [bool(call) for call in predicted.lengths()] == predicted.deep()
    assert differ(plain, predicted) == [True]
    assert np.abs(plain.latents[0] - predicted.latents[0]).mean() < plain.latents[0].std()


@pytest.mark.parametrize("sampler", ["dpmpp_2m_sde", "heun", "dpmpp_sde"])
def test_deep_layers_are_predicted_with_other_samplers(run, sampler):
    predicted = run(PREDICTS, sampler_name=sampler, **SMALL_STEPS)
    assert all(predicted.lengths())
    assert {*predicted.deep()} == {True, False}


def test_the_defaults_reduce_tokens_in_each_step(run):
    """640 px: 1.25 times the trained size. CFG 1 calls the model with one row, in half the time."""
    balanced = {"preset": "ToDo balanced"}
    result = run(balanced, sampler_name="dpmpp_2m", size=(640, 640), cfg=1.0, **SMALL_STEPS)
    assert {*result.level_1()} == {(6400, 1600)}
    assert all(result.deep())


# beside other nodes ---------------------------------------------------------------------------------------------------


def one(kind, **inputs):
    return lambda graph, model: graph(kind, model=model, **inputs)[0]


def freeu_and_sag(graph, model):
    model = graph("FreeU_V2", model=model, b1=1.3, b2=1.4, s1=0.9, s2=0.2)[0]
    return graph("SelfAttentionGuidance", model=model, scale=0.5, blur_sigma=2.0)[0]


BESIDE = {
    "Deep Shrink": one(
        "PatchModelAddDownscale",
        block_number=3,
        downscale_factor=2.0,
        start_percent=0.0,
        end_percent=1.0,
        downscale_after_skip=True,
        downscale_method="bicubic",
        upscale_method="bicubic",
    ),
    "FreeU + SAG": freeu_and_sag,
    "PAG": one("PerturbedAttentionGuidance", scale=3.0),
    "TomePatchModel": one("TomePatchModel", ratio=0.5),
}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("name", BESIDE)
def test_beside(run, name, place):
    beside = {place: BESIDE[name], "size": (128, 128)}
    plain, reduced, again = (run(todo, **beside) for todo in (None, OURS, None))
    assert differ(plain, reduced) == [True]
    if name != "TomePatchModel":  # it draws at random
        assert differ(plain, again) == [False]
    keys = {pair[1] for call in reduced.lengths() for pair in call}
    assert 64 in keys
    assert 256 not in keys


def test_hypertile_is_left_alone(run):
    tiles = one("HyperTile", tile_size=64, swap_size=1, max_depth=0, scale_depth=False)
    plain, result = (run(todo, before=tiles, size=(128, 128)) for todo in (None, OURS))
    assert result.lengths() == plain.lengths()
    assert any(queries < keys for queries, keys in plain.lengths()[0]), "it tiles the queries alone"


def test_lora(run, named):
    lora = one("LoraLoaderModelOnly", lora_name=named("lora"), strength_model=1.0)
    _, reduced = assert_reduced(run, before=lora)
    after, without = run(OURS, after=lora), run(OURS)
    assert differ(reduced, after) == [False]
    assert differ(reduced, without) == [True]


def merge(graph, model):
    other = graph("CheckpointLoaderSimple", **graph["1"]["inputs"])[0]
    return graph("ModelMergeSimple", model1=model, model2=other, ratio=0.5)[0]


def test_merged_models(run):
    assert {*run(OURS, after=merge).level_1()} == {REDUCED}


def test_area_conditioning(run):
    def areas(graph, positive, negative):
        left = graph("ConditioningSetArea", conditioning=positive, width=64, height=64, x=0, y=0, strength=1.0)[0]
        return graph("ConditioningCombine", conditioning_1=positive, conditioning_2=left)[0], negative

    calls = run(OURS | {"end": 0.5}, conditions=areas, size=(128, 64)).level_1()
    assert [call for call in calls if call[0] == 64] == [REDUCED] * 2 + [WHOLE] * 2
    assert [call for call in calls if call[0] == 128] == [(128, 32)] * 2 + [(128, 128)] * 2


def test_controlnet(run, named):
    def control(graph, positive, negative):
        net = graph("ControlNetLoader", control_net_name=named("controlnet"))[0]
        hint = graph("EmptyImage", width=64, height=64, batch_size=1, color=0x8040C0)[0]
        wired = {"positive": positive, "negative": negative, "control_net": net, "image": hint}
        return graph("ControlNetApplyAdvanced", **wired, strength=1.0, start_percent=0.0, end_percent=1.0)[:2]

    _, reduced = assert_reduced(run, conditions=control)
    assert "ControlNet too" in " ".join(reduced.lines)


# graphs ---------------------------------------------------------------------------------------------------------------


def test_two_samplers_of_one_graph_have_their_own_settings(run):
    """Hires fix. A node of its own for the second alone leaves the first image as it is."""
    both = run(OURS, {"factor_1": 4, "interval": 1, "end": 0.5})
    assert both.level_1(0) == [REDUCED] * 4
    assert both.level_1(1) == [(256, 16)] * 2 + [(256, 256)] * 2
    by_size = (sorted(run(None, second).latents, key=np.size) for second in (None, OURS))  # told in any order
    first, second = zip(*by_size, strict=True)
    assert np.array_equal(*first)
    assert not np.array_equal(*second)


def test_the_last_of_two_nodes_counts(run):
    result = run(OURS, after=lambda graph, model: add_todo(graph, model, {"factor_1": 4, "interval": 1}))
    assert {*result.level_1()} == {(64, 4)}


def test_a_repeated_graph_runs_nothing(run):
    assert run(OURS, name="once").seen
    assert not run(OURS, name="once").seen


# what cannot be -------------------------------------------------------------------------------------------------------


def test_a_model_that_is_no_unet_passes_through(run):
    plain, result = (run(todo, before=one("ToDoProbeNoUNet")) for todo in (None, OURS))
    assert differ(plain, result) == [False]
    assert "ToDo leaves this model as it is" in " ".join(result.lines)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"factor_1": "9"}, ["factor_1", "'9'", "'8'"]),
        ({"end": 1.5}, ["end", "1.5", "max"]),
        ({"preset": "ToDo"}, ["preset", "'ToDo'", "ToDo fast"]),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_field_value_and_what_is_allowed(comfyui, seed, values, words):
    status, answer = comfyui.post("/prompt", {"prompt": text_to_image(comfyui, values, seed=seed)})
    assert status == 400
    assert all(word in str(answer) for word in words), answer


def test_values_that_cannot_be_together_are_named(comfyui, seed):
    result = comfyui.run(text_to_image(comfyui, OURS | {"start": 0.8, "end": 0.5}, seed=seed))
    assert result.error.strip() == "start = 0.8 is not possible; allowed: a value below the end, 0.5"


# SDXL -----------------------------------------------------------------------------------------------------------------


def test_the_layout_of_sdxl(comfyui, seed, named):
    """Level 1 lies at half the latent's side."""

    def run(name, todo, beside=None, **more):
        graph = Graph()
        model = graph("UNETLoader", unet_name=named("sdxl-unet"), weight_dtype="default")[0]
        words = [graph("ToDoProbeWords", width=2048, seed=i)[0] for i in range(2)]
        model = model if todo is None else add_todo(graph, model, todo)
        model = beside(graph, model) if beside else model
        latent = graph("EmptyLatentImage", width=128, height=128, batch_size=1)[0]
        sample(graph, model, *words, latent, name, {}, seed=seed, **more)
        result = comfyui.run(graph)
        assert result.ok, result.error
        return result

    plain, reduced = run("1", None), run("2", OURS | {"end": 0.5})
    predicted, again = run("3", OURS | {"interval": 2}, denoise=0.3), run("4", None)
    assert reduced.level_1() == [REDUCED] * 2 + [WHOLE] * 2
    assert differ(plain, again) == [False]
    assert differ(plain, reduced) == [True]
    assert {*predicted.deep()} == {True, False}
    run("5", OURS, beside=BESIDE["PAG"])  # it replaces a self-attention at level 2
