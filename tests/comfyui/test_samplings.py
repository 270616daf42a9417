"""The nodes on a real ComfyUI beside what the contract says: its samplers, other nodes and layouts."""

import numpy as np
import pytest

from .helpers import Graph, add_todo, sample, text_to_image

WHOLE, REDUCED = (64, 64), (64, 16)  # at 64 x 64: level 1 has 8 x 8 tokens
OURS = {"factor_1": 2, "interval": 1, "start": 0, "end": 1}
# a random model changes the image much in a step, and ToDo predicts only where it could be the same image; with the
# schedule "normal", errors of dpmpp_2m, lms, deis, ipndm and res_multistep grow too much
SMALL_STEPS = {"steps": 6, "denoise": 0.3, "scheduler": "karras"}


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


def assert_reduced(run, **more):
    """What each call reduces; the images differ from the baselines, which are the same afterwards."""
    plain, reduced, again = (run(todo, **more) for todo in (None, OURS, None))
    assert {*plain.level_1()} == {WHOLE}
    assert {*reduced.level_1()} == {REDUCED}
    assert {*differ(plain, reduced)} == {True}
    assert {*differ(plain, again)} == {False}
    return plain, reduced


def test_each_image_of_a_batch_is_reduced(run):
    assert len(assert_reduced(run, batch=2)[1].latents) == 2


def test_an_odd_grid(run):
    """23 x 17 tokens: every second of them, at a position that moves."""
    calls = run(OURS, size=(136, 184)).level_1()
    assert all(tokens == 391 and keys <= 108 for tokens, keys in calls)


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


def test_the_defaults_reduce_tokens_in_a_step_that_weighs_little(run):
    """640 px: 1.25 times the trained size. CFG 1 calls the model with one row, in half the time."""
    balanced = {"preset": "Balanced"}
    result = run(balanced, sampler_name="dpmpp_2m", size=(640, 640), cfg=1.0, steps=2)
    assert result.level_1() == [(6400, 6400), (6400, 1600)]
    assert all(result.deep())


def one(kind, **inputs):
    return lambda graph, model: graph(kind, model=model, **inputs)[0]


def freeu_and_sag(graph, model):
    model = graph("FreeU_V2", model=model, b1=1.3, b2=1.4, s1=0.9, s2=0.2)[0]
    return graph("SelfAttentionGuidance", model=model, scale=0.5, blur_sigma=2.0)[0]


SHRINK = {"block_number": 3, "downscale_factor": 2.0, "downscale_after_skip": True}
SHRINK |= {"start_percent": 0.0, "end_percent": 1.0, "downscale_method": "bicubic", "upscale_method": "bicubic"}
BESIDE = {
    "Deep Shrink": one("PatchModelAddDownscale", **SHRINK),
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


@pytest.mark.parametrize("is_split", [True, False])
def test_the_line_says_where_another_model_has_a_part_of_the_guidance(comfyui, seed, is_split):
    graph = Graph()
    model, clip, _ = graph("CheckpointLoaderSimple", ckpt_name=comfyui.checkpoint)
    other = graph("unCLIPCheckpointLoader", ckpt_name=comfyui.checkpoint)[0] if is_split else model
    texts = [graph("CLIPTextEncode", clip=clip, text=text)[0] for text in ("a red house", "")]
    reduced = graph("ToDoProbeWatch", model=add_todo(graph, model, OURS), name="", happens="{}")[0]
    wired = {"model": reduced, "positive": texts[0], "model_negative": other, "negative": texts[1]}
    guider = graph("DualModelGuider", **wired, cfg=5.0)[0]
    sigmas = graph("BasicScheduler", model=reduced, scheduler="normal", steps=4, denoise=1.0)[0]
    latent = graph("EmptyLatentImage", width=64, height=64, batch_size=1)[0]
    noise = graph("RandomNoise", noise_seed=seed)[0]
    wired = {"noise": noise, "guider": guider, "sampler": graph("KSamplerSelect", sampler_name="euler")[0]}
    graph("ToDoProbeShow", samples=graph("SamplerCustomAdvanced", **wired, sigmas=sigmas, latent_image=latent)[0])
    result = comfyui.run(graph)
    assert result.ok, result.error
    assert result.level_1().count(REDUCED) == (4 if is_split else 8)
    assert ("which is neither reduced nor counted" in result.lines[0]) == is_split
    assert ("less work" in result.lines[0]) != is_split


def test_a_repeated_graph_runs_nothing(run):
    assert run(OURS, name="once").seen
    assert not run(OURS, name="once").seen


REFUSED = [
    ({"factor_1": "9"}, ["factor_1", "'9'", "'8'"]),
    ({"end": 1.5}, ["end = 1.5 is not possible; allowed: 'auto' or a number from 0 to 1"]),
    ({"start": 0.8, "end": 0.5}, ["start = 0.8 is not possible; allowed: a value below the end, 0.5"]),
]


@pytest.mark.parametrize(("values", "words"), REFUSED)
def test_a_value_that_cannot_be_is_refused_with_field_value_and_what_is_allowed(comfyui, seed, values, words):
    status, answer = comfyui.post("/prompt", {"prompt": text_to_image(comfyui, OURS | values, seed=seed)})
    assert status == 400
    assert all(word in str(answer) for word in words), answer


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
    run("5", OURS | {"factor_2": "2"}, beside=BESIDE["PAG"])  # it replaces a self-attention at level 2
