"""The node on a real ComfyUI: what it reduces, and that it leaves nothing behind."""

import time

import numpy as np
import pytest

from .helpers import Graph, add_todo, sample, text_to_image

WHOLE, REDUCED = (256, 256), (256, 64)  # at 128 x 128: level 1 has 16 x 16 tokens


def level_1(call, queries=256):
    return {pair for pair in call if pair[0] == queries}


def differ(one, other):
    return [not np.array_equal(a, b) for a, b in zip(one.latents, other.latents, strict=True)]


def assert_images(*results):
    for result in results:
        assert result.ok, result.error
        assert result.latents
        assert all(latent.std() > 0.1 for latent in result.latents), "an image without contrast proves nothing"


def test_only_the_steps_in_the_window_are_reduced_and_the_next_baseline_is_the_same(comfyui, seed):
    plain = comfyui.run(text_to_image(comfyui, seed=seed, probe={"name": "1"}))
    reduced = comfyui.run(text_to_image(comfyui, seed=seed, todo={"start": 0.25, "end": 0.75}))
    again = comfyui.run(text_to_image(comfyui, seed=seed, probe={"name": "2"}))
    assert_images(plain, reduced, again)
    assert [level_1(call) for call in reduced.lengths()] == [{WHOLE}, {REDUCED}, {REDUCED}, {WHOLE}]
    assert {pair for call in again.lengths() for pair in level_1(call)} == {WHOLE}
    assert differ(plain, again) == [False]
    assert differ(plain, reduced) == [True]


def test_a_factor_of_1_gives_the_baseline_to_the_bit(comfyui, seed):
    plain = comfyui.run(text_to_image(comfyui, seed=seed))
    same = comfyui.run(text_to_image(comfyui, seed=seed, todo={"factor_1": "1"}))
    assert_images(plain, same)
    assert differ(plain, same) == [False]


def test_an_image_of_a_batch_is_reduced_as_its_neighbour(comfyui, seed):
    result = comfyui.run(text_to_image(comfyui, seed=seed, batch=2, todo={}))
    assert_images(result)
    assert len(result.latents) == 2
    assert all(level_1(call) == {REDUCED} for call in result.lengths())


@pytest.mark.parametrize("sampler", ["heun", "dpmpp_2m", "dpmpp_sde"])
def test_samplers(comfyui, seed, sampler):
    result = comfyui.run(text_to_image(comfyui, seed=seed, sampler=sampler, todo={"end": 0.5}))
    assert_images(result)
    calls = [level_1(call) for call in result.lengths()]
    assert calls[0] == {REDUCED}
    assert calls[-1] == {WHOLE}
    assert calls == sorted(calls, key=lambda call: call == {WHOLE}), "the window is one piece"


def test_an_odd_grid(comfyui, seed):
    """23 x 17 tokens: every second of them, at a position that moves."""
    result = comfyui.run(text_to_image(comfyui, seed=seed, size=(136, 184), todo={}))
    assert_images(result)
    assert all(max(keys for _, keys in level_1(call, 391)) <= 108 for call in result.lengths())


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "cluster"},
        {"method": "similarity", "target": "all", "crossattn": True, "mlp": True},
        {"target": "all"},
        {"resample": "bicubic"},
        {"window": "noise"},
        {"factor_2": "2"},
        {"seed": 5, "method": "similarity"},
    ],
    ids=str,
)
def test_settings(comfyui, seed, settings):
    result = comfyui.run(text_to_image(comfyui, seed=seed, todo={}, settings=settings))
    assert_images(result)
    assert all(level_1(call) != {WHOLE} for call in result.lengths())


# a random model changes the image much in a step, and ToDo predicts only where it could be the same image
SMALL_STEPS = {"steps": 6, "denoise": 0.3}


def test_deep_transformers_are_predicted_between_steps(comfyui, seed):
    run = {"seed": seed, **SMALL_STEPS}
    plain = comfyui.run(text_to_image(comfyui, **run))
    predicted = comfyui.run(text_to_image(comfyui, **run, todo={"factor_1": "1", "interval": "2"}))
    assert_images(plain, predicted)
    whole = plain.transformers()[0]
    ran = [n == whole for n in predicted.transformers()]
    assert ran[:3] == [True, True, False]
    assert ran[-1]
    assert differ(plain, predicted) == [True]
    assert np.abs(plain.latents[0] - predicted.latents[0]).mean() < plain.latents[0].std()


WITHOUT_NOISE = ["euler", "dpmpp_2m", "lms", "uni_pc", "uni_pc_bh2", "ddim", "deis", "ipndm", "ipndm_v"]
WITHOUT_NOISE += ["res_multistep", "gradient_estimation"]
WITHOUT_NOISE += [f"{name}_cfg_pp" for name in ("euler", "dpmpp_2m", "res_multistep", "gradient_estimation")]


@pytest.mark.parametrize("sampler", WITHOUT_NOISE)
def test_whole_steps_are_predicted_with_samplers_that_add_no_noise(comfyui, seed, sampler):
    run = {"seed": seed, **SMALL_STEPS, "sampler": sampler}
    plain = comfyui.run(text_to_image(comfyui, **run))
    run |= {"todo": {"factor_1": "preset", "interval": "2"}, "settings": {"predict": "whole"}}
    predicted = comfyui.run(text_to_image(comfyui, **run))
    assert_images(plain, predicted)
    ran = [bool(count) for count in predicted.transformers()]
    assert ran == [True, True, True, False, True, True]
    assert [bool(call) for call in predicted.lengths()] == ran
    assert differ(plain, predicted) == [True]
    assert np.abs(plain.latents[0] - predicted.latents[0]).mean() < plain.latents[0].std()


@pytest.mark.parametrize("sampler", ["euler_ancestral", "dpmpp_2m_sde", "heun", "dpmpp_sde"])
def test_deep_layers_are_predicted_with_other_samplers(comfyui, seed, sampler):
    run = {"seed": seed, **SMALL_STEPS, "sampler": sampler, "todo": {"factor_1": "1", "interval": "2"}}
    predicted = comfyui.run(text_to_image(comfyui, **run, settings={"predict": "whole"}))
    assert_images(predicted)
    counts = predicted.transformers()
    assert 0 not in counts
    assert len(set(counts)) == 2


def test_the_defaults_reduce_tokens_in_each_step(comfyui, seed):
    """640 px: 1.25 times the trained size. CFG 1 calls the model with one row, in half the time."""
    run = {"seed": seed, **SMALL_STEPS, "sampler": "dpmpp_2m", "size": (640, 640), "cfg": 1.0}
    result = comfyui.run(text_to_image(comfyui, **run, todo={"factor_1": "preset", "interval": "preset"}))
    assert all((6400, 1600) in call for call in result.lengths())
    assert len(set(result.transformers())) == 1


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
def test_beside(comfyui, seed, name, place):
    run = {"seed": seed, place: BESIDE[name]}
    plain = comfyui.run(text_to_image(comfyui, **run, probe={"name": "1"}))
    reduced = comfyui.run(text_to_image(comfyui, **run, todo={}))
    again = comfyui.run(text_to_image(comfyui, **run, probe={"name": "2"}))
    assert_images(plain, reduced, again)
    assert differ(plain, reduced) == [True]
    if name != "TomePatchModel":  # it draws at random
        assert differ(plain, again) == [False]
    keys = {pair[1] for call in reduced.lengths() for pair in call}
    assert 64 in keys
    assert 256 not in keys


def test_hypertile_is_left_alone(comfyui, seed):
    tiles = one("HyperTile", tile_size=64, swap_size=1, max_depth=0, scale_depth=False)
    plain = comfyui.run(text_to_image(comfyui, seed=seed, before=tiles, probe={"name": "1"}))
    result = comfyui.run(text_to_image(comfyui, seed=seed, before=tiles, todo={}))
    assert_images(plain, result)
    assert result.lengths() == plain.lengths()
    assert any(queries < keys for queries, keys in plain.lengths()[0]), "it tiles the queries alone"


def test_lora(comfyui, seed, named):
    lora = one("LoraLoaderModelOnly", lora_name=named("lora"), strength_model=1.0)
    plain = comfyui.run(text_to_image(comfyui, seed=seed, before=lora, probe={"name": "1"}))
    reduced = comfyui.run(text_to_image(comfyui, seed=seed, before=lora, todo={}))
    after = comfyui.run(text_to_image(comfyui, seed=seed, after=lora, todo={}))
    again = comfyui.run(text_to_image(comfyui, seed=seed, before=lora, probe={"name": "2"}))
    without = comfyui.run(text_to_image(comfyui, seed=seed, todo={}))
    assert_images(plain, reduced, after, again, without)
    assert all(level_1(call) == {REDUCED} for call in reduced.lengths())
    assert differ(reduced, after) == differ(plain, again) == [False]
    assert differ(plain, reduced) == differ(reduced, without) == [True]


def test_merged_models(comfyui, seed):
    def merge(graph, model):
        other = graph("CheckpointLoaderSimple", ckpt_name=comfyui.checkpoint)[0]
        return graph("ModelMergeSimple", model1=model, model2=other, ratio=0.5)[0]

    result = comfyui.run(text_to_image(comfyui, seed=seed, after=merge, todo={}))
    assert_images(result)
    assert all(level_1(call) == {REDUCED} for call in result.lengths())


def test_area_conditioning(comfyui, seed):
    def areas(graph, positive, negative):
        left = graph("ConditioningSetArea", conditioning=positive, width=64, height=128, x=0, y=0, strength=1.0)[0]
        return graph("ConditioningCombine", conditioning_1=positive, conditioning_2=left)[0], negative

    result = comfyui.run(text_to_image(comfyui, seed=seed, conditions=areas, todo={"end": 0.5}))
    assert_images(result)
    by_size = {}
    for call, lengths in zip(result.seen[0]["calls"], result.lengths(), strict=True):
        by_size.setdefault(tuple(call["latent"][2:]), []).append(lengths)
    assert [level_1(call) for call in by_size[16, 16]] == [{REDUCED}] * 2 + [{WHOLE}] * 2
    assert [level_1(call, 128) for call in by_size[16, 8]] == [{(128, 32)}] * 2 + [{(128, 128)}] * 2


def test_controlnet(comfyui, seed, named):
    def control(graph, positive, negative):
        net = graph("ControlNetLoader", control_net_name=named("controlnet"))[0]
        hint = graph("EmptyImage", width=128, height=128, batch_size=1, color=0x8040C0)[0]
        wired = {"positive": positive, "negative": negative, "control_net": net, "image": hint}
        return graph("ControlNetApplyAdvanced", **wired, strength=1.0, start_percent=0.0, end_percent=1.0)[:2]

    plain = comfyui.run(text_to_image(comfyui, seed=seed, conditions=control, probe={"name": "1"}))
    reduced = comfyui.run(text_to_image(comfyui, seed=seed, conditions=control, todo={}))
    again = comfyui.run(text_to_image(comfyui, seed=seed, conditions=control, probe={"name": "2"}))
    assert_images(plain, reduced, again)
    assert all(level_1(call) == {REDUCED} for call in reduced.lengths())
    assert differ(plain, again) == [False]
    assert differ(plain, reduced) == [True]


# graphs ---------------------------------------------------------------------------------------------------------------


def two_samplers(comfyui, seed, first, second, run=""):
    """Hires fix: the second sampler works on the upscaled latent of the first; each has a ToDo of its own, or none."""
    graph = Graph()
    model, clip, _ = graph("CheckpointLoaderSimple", ckpt_name=comfyui.checkpoint)
    words = [graph("CLIPTextEncode", clip=clip, text=text)[0] for text in ("a red house", "")]
    options = {"seed": seed, "steps": 3, "cfg": 5.0, "sampler_name": "euler"}
    models = [model if todo is None else add_todo(graph, model, todo) for todo in (first, second)]
    latent = sample(graph, models[0], *words, (128, 128), 1, options, {"name": f"first{run}"})
    large = {"upscale_method": "bilinear", "width": 256, "height": 256, "crop": "disabled"}
    latent = graph("LatentUpscale", samples=latent, **large)[0]
    sample(graph, models[1], *words, (256, 256), 1, options, {"name": "second"}, latent=latent)
    return graph


def test_two_samplers_of_one_graph_have_their_own_settings(comfyui, seed):
    both = comfyui.run(two_samplers(comfyui, seed, {"factor_1": "2"}, {"factor_1": "4", "end": 0.4}))
    assert_images(both)
    assert [each["name"] for each in both.seen] == ["first", "second"]
    assert [level_1(call) for call in both.lengths(0)] == [{REDUCED}] * 3
    assert [level_1(call, 1024) for call in both.lengths(1)] == [{(1024, 64)}] * 2 + [{(1024, 1024)}]


def test_the_first_image_of_hires_fix_is_the_baselines(comfyui, seed):
    plain = comfyui.run(two_samplers(comfyui, seed, None, None, run=" 1"))
    hires = comfyui.run(two_samplers(comfyui, seed, None, {}, run=" 2"))  # with the same name it would not run again
    assert_images(plain, hires)
    by_size = (sorted(result.latents, key=np.size) for result in (plain, hires))  # told in any order
    first, second = zip(*by_size, strict=True)
    assert np.array_equal(*first)
    assert not np.array_equal(*second)


def test_the_last_of_two_nodes_counts(comfyui, seed):
    chained = lambda graph, model: add_todo(graph, model, {"factor_1": "4"})  # noqa: E731
    result = comfyui.run(text_to_image(comfyui, seed=seed, todo={}, after=chained))
    assert_images(result)
    assert all(level_1(call) == {(256, 16)} for call in result.lengths())


def test_a_repeated_graph_runs_nothing(comfyui, seed):
    graph = text_to_image(comfyui, seed=seed, todo={})
    assert comfyui.run(graph).seen
    assert not comfyui.run(graph).seen


def test_an_equal_seed_gives_an_equal_image(comfyui, seed):
    settings = {"method": "similarity"}
    one, other = (
        comfyui.run(text_to_image(comfyui, seed=seed, todo={}, settings=settings, probe={"name": name}))
        for name in ("1", "2")
    )
    assert_images(one, other)
    assert len(other.seen) == 1
    assert differ(one, other) == [False]


def test_a_cancelled_sampling_leaves_nothing(comfyui, seed):
    plain = comfyui.run(text_to_image(comfyui, seed=seed, probe={"name": "1"}))
    prompt = comfyui.start(text_to_image(comfyui, seed=seed, steps=40, todo={"interval": "2"}, probe={"delay": 0.3}))
    until = time.monotonic() + 60
    while not (seen := comfyui.get("/todo-probe/seen")) and time.monotonic() < until:
        time.sleep(0.2)
    assert seen
    comfyui.post("/interrupt", {})
    result = comfyui.finish(prompt)
    assert not result.ok
    assert "execution_interrupted" in [kind for kind, _ in result.entry["status"]["messages"]]
    again = comfyui.run(text_to_image(comfyui, seed=seed, probe={"name": "2"}))
    assert_images(plain, again)
    assert differ(plain, again) == [False]


def test_an_error_in_the_model_leaves_nothing(comfyui, seed):
    failed = comfyui.run(text_to_image(comfyui, seed=seed, todo={}, probe={"fail_at": 2}))
    assert "told to fail" in failed.error
    assert comfyui.left()["hooks"] == 0
    reduced = comfyui.run(text_to_image(comfyui, seed=seed, todo={}))
    assert_images(reduced)
    assert all(level_1(call) == {REDUCED} for call in reduced.lengths())


# what cannot be -------------------------------------------------------------------------------------------------------


def test_a_model_that_is_no_unet_passes_through(comfyui, seed):
    other = one("ToDoProbeNoUNet")
    graph = text_to_image(comfyui, seed=seed, before=other, todo={})
    plain = comfyui.run(text_to_image(comfyui, seed=seed, before=other))
    result = comfyui.run(graph)
    assert result.ok, result.error
    assert differ(plain, result) == [False]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"factor_1": "9"}, ["factor_1", "'9'", "'8'"]),
        ({"end": 1.5}, ["end", "1.5", "max"]),
        ({"preset": "ToDo"}, ["preset", "'ToDo'", "ToDo fast"]),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_field_value_and_what_is_allowed(comfyui, seed, values, words):
    status, answer = comfyui.post("/prompt", {"prompt": text_to_image(comfyui, seed=seed, todo=values)})
    assert status == 400
    assert all(word in str(answer) for word in words), answer


def test_values_that_cannot_be_together_are_named(comfyui, seed):
    result = comfyui.run(text_to_image(comfyui, seed=seed, todo={"start": 0.8, "end": 0.5}))
    assert result.error.strip() == "start = 0.8 is not possible; allowed: a value below the end, 0.5"


# SDXL -----------------------------------------------------------------------------------------------------------------


def test_the_layout_of_sdxl(comfyui, seed, named):
    """Level 1 lies at half the latent's side."""

    def graph(todo, name="", beside=None, **more):
        graph = Graph()
        model = graph("UNETLoader", unet_name=named("sdxl-unet"), weight_dtype="default")[0]
        words = [graph("ToDoProbeWords", width=2048, seed=i)[0] for i in range(2)]
        model = model if todo is None else add_todo(graph, model, todo)
        model = beside(graph, model) if beside else model
        options = {"seed": seed, "steps": 4, "cfg": 5.0, "sampler_name": "euler"} | more
        sample(graph, model, *words, (256, 256), 1, options, {"name": name})
        return graph

    plain, reduced = comfyui.run(graph(None, "1")), comfyui.run(graph({"end": 0.5}))
    predicted, again = comfyui.run(graph({"interval": "2"}, denoise=0.3)), comfyui.run(graph(None, "2"))
    assert_images(plain, reduced, predicted, again)
    assert [level_1(call) for call in reduced.lengths()] == [{REDUCED}] * 2 + [{WHOLE}] * 2
    assert differ(plain, again) == [False]
    assert differ(plain, reduced) == [True]
    assert len(set(predicted.transformers())) == 2
    guided = comfyui.run(graph({}, beside=BESIDE["PAG"]))  # it replaces a self-attention at level 2
    assert_images(guided)
