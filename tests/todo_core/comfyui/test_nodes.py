"""The nodes on a double of ComfyUI: inputs from the declaration, what is reduced, and what is left."""

import importlib.util
import json
import logging
import re
import subprocess
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn

from tests import samplers_double
from tests.models import ldm_sd1, shallow
from tests.todo_core.contract.watch import Watch
from todo_core import Settings, SettingsError, __version__
from todo_core.comfyui import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS, compat
from todo_core.comfyui.asked import Guidance, guidance_of
from todo_core.comfyui.inputs import MAIN, REST, settings_of
from todo_core.hosts import detect
from todo_core.reason import Reason
from todo_core.settings import BUILT_IN, SETTINGS

from . import comfyui_double
from .comfyui_double import Guider, model_of

ROOT = Path(__file__).parents[3]
WHOLE, REDUCED = (256, 256), (256, 64)


@pytest.fixture
def shown(monkeypatch):
    return comfyui_double.install(monkeypatch)


@pytest.fixture
def model():
    return model_of(shallow().unet)


def todo(model, node="7", **values):
    values = {"preset": "Balanced", "factor_1": "2", "interval": "1", "start": "0", "end": 1.0} | values
    return NODE_CLASS_MAPPINGS["ToDo"]().patch(model, node=node, **values)[0]


def more(**values):
    return NODE_CLASS_MAPPINGS["ToDoSettings"]().collect(**values)[0]


def lengths(model, run):
    """For each UNet call in ``run``, the (tokens, keys) of the self-attentions at level 1; and what it gives."""
    with Watch().on(type(model.model.diffusion_model)) as calls:
        result = run()
    return [{(tokens, keys) for tokens, keys in each["lengths"] if tokens == 256} for each in calls], result


# inputs ---------------------------------------------------------------------------------------------------------------


def inputs_of(name):
    found = NODE_CLASS_MAPPINGS[name].INPUT_TYPES()
    return {**found["required"], **found["optional"]}


def test_every_setting_is_an_input_of_one_node_except_the_passes():
    assert sorted([*MAIN, *REST, "passes"]) == sorted(SETTINGS)
    assert [*MAIN] == [name for name in SETTINGS if name in MAIN]
    assert list(NODE_CLASS_MAPPINGS["ToDo"].INPUT_TYPES()["required"]) == ["model", "preset"], "a program may send less"
    assert [name for name, (_, options) in inputs_of("ToDo").items() if options.get("advanced")] == [*MAIN]
    assert list(inputs_of("ToDo")) == ["model", "preset", *MAIN, "settings"]
    assert list(inputs_of("ToDoSettings")) == list(REST)
    assert NODE_DISPLAY_NAME_MAPPINGS.keys() == NODE_CLASS_MAPPINGS.keys()


def test_a_window_that_is_not_possible_is_refused_when_the_prompt_is_queued():
    refused = NODE_CLASS_MAPPINGS["ToDo"].VALIDATE_INPUTS
    assert refused(start=0.8) is refused(start=0.1, end=0.4) is refused(start="auto", end="preset") is True
    assert all("end" in answer for answer in (refused(start=0.8, end=0.4), refused(start="0.8", end="0.8")))


def test_label_help_limits_and_choices_are_the_declared_ones():
    for name, (kind, options) in [*inputs_of("ToDo").items(), *inputs_of("ToDoSettings").items()]:
        if name in ("model", "preset", "settings"):
            continue
        declared = SETTINGS[name]
        assert options["display_name"] == declared.label
        assert options["tooltip"].startswith(declared.help)
        if name != "seed":
            assert kind[0] == options["default"] == "preset"
            used = {getattr(preset, name) for preset in BUILT_IN.values()}
            assert {declared.parse(value) for value in kind[1:]} >= {*declared.choices, declared.default, *used}
        if declared.kind == "factor":
            assert [value for value in kind if value != "preset"] == ["auto", *"12345678"]
            assert {2, "2", "auto"} <= {value for value in (2, "2", "auto") if value in kind}, "a program's number"
        if declared.has_auto:
            assert not any(value in kind for value in (99, "99", -1, True, None))
            assert json.loads(json.dumps(kind)) == list(kind)


def test_the_defaults_of_the_nodes_leave_all_to_the_preset():
    rest, main = (
        {name: options["default"] for name, (_, options) in inputs_of(node).items() if name in SETTINGS}
        for node in ("ToDoSettings", "ToDo")
    )
    assert inputs_of("ToDo")["preset"][1]["default"] == next(iter(BUILT_IN))
    for name, preset in BUILT_IN.items():
        assert settings_of(name, rest, main) == settings_of(name, {}, {}) == preset


def test_values_replace_those_of_the_preset():
    assert settings_of("Balanced", {}, {"factor_1": 2, "interval": "3"}) == Settings(factor_1=2, interval=3)
    assert settings_of("Fast", {"factor_2": "1"}, {"tolerance": "0.04", "end": 0.5}) == Settings(
        factor_2=1, tolerance=0.04, end=0.5
    )
    with pytest.raises(SettingsError, match=r"start = 0.8 is not possible; allowed: a value below the end, 0.7"):
        settings_of("Balanced", {}, {"start": 0.8, "end": 0.7})
    with pytest.raises(SettingsError, match=r"factor_1 = 9 is not possible; allowed: 'auto' or a whole number from 1"):
        settings_of("Balanced", {}, {"factor_1": "9"})
    with pytest.raises(SettingsError, match=r"ratio_1 = 0.9 is not possible; allowed: at most 0.75"):
        settings_of("Balanced", more(method="similarity", ratio_1=0.9), {})


def test_inputs_that_the_other_node_has_today_count_where_older_prompts_have_them():
    """ComfyUI hands over no input that a node does not declare."""
    inputs = {"predict": "whole", "tolerance": ["5", 0], "seed": 3, "interval": "preset"}
    prompt, node = {"9": {"class_type": "ToDoSettings", "inputs": inputs}}, NODE_CLASS_MAPPINGS["ToDoSettings"]()
    assert {"prompt", "node"} == node.INPUT_TYPES()["hidden"].keys()
    (rest,) = node.collect(prompt=prompt, node="9", seed=3)
    with pytest.raises(SettingsError, match="tolerance"):  # of a link, the value is not known here
        settings_of("Balanced", rest, {})
    del rest["tolerance"]
    assert settings_of("Balanced", rest, dict.fromkeys(MAIN, "preset")) == Settings(predict="whole", seed=3)
    assert settings_of("Balanced", rest, {"predict": "deep"}) == Settings(predict="deep", seed=3)


# samplings ------------------------------------------------------------------------------------------------------------


def test_of_the_tiles_of_a_prompt_the_line_tells_how_many_were_reduced(shown, model, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "todo_core")
    reduced, instance = todo(model), sys.modules["server"].PromptServer.instance
    for prompt in ("a", "a", "b"):
        monkeypatch.setattr(instance, "last_prompt_id", prompt, raising=False)
        Guider(reduced).sample()
    line = "ToDo reduced the sampling at 128 x 128: 7 % less work"
    line += "; level 1 from 256 to 64 tokens (downsample) in 4 of 4 steps"
    assert shown == [(line, "7"), (f"2 of 2 samplings reduced. {line}", "7"), (line, "7")]
    assert [record.message for record in caplog.records] == [text for text, _ in shown]


def sampler(name, package="comfy.k_diffusion.sampling", **options):
    return SimpleNamespace(sampler_function=samplers_double.of(package)[name], extra_options=options)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (sampler("euler", s_churn=5.0), "whole model computed in 4 of 6 model calls"),  # an image is held
        (sampler("ancestral", eta=0.0), "whole model computed in 5 of 6 steps"),
        (sampler("euler", package="a_node"), str(Reason.UNKNOWN)),  # it may keep a state
        (sampler("adaptive"), str(Reason.UNKNOWN)),
    ],
)
def test_the_sampler_is_asked_what_it_does(shown, model, asked, told):
    patched = todo(model, factor_1="1", interval="2", predict="whole")
    Guider(patched).sample(steps=6, sampler=asked)
    assert told in shown[0][0]


def test_a_schedule_that_the_calls_do_not_keep_to_is_not_believed(shown, model, monkeypatch):
    """A wrapper inside of ours may give the sampler other sigmas."""
    told = comfyui_double.Guider._outer_sample
    inside = lambda self, noise, latent, sampler, sigmas, *more: told(self, noise, latent, sampler, 1.5 * sigmas, *more)  # noqa: E731
    monkeypatch.setattr(comfyui_double.Guider, "_outer_sample", inside)
    Guider(todo(model, factor_1="1", interval="auto")).sample(steps=8)
    assert str(Reason.DISAGREES) in shown[0][0]
    assert "computed in" not in shown[0][0]


class Two(Guider):
    """Dual CFG: each of three prompts has a weight, and the negative one is the first."""

    cfg1, cfg2 = 4.0, 3.0

    def predict_noise(self, x, sigma, model_options, seed=None):
        conds = [self.conds[name] for name in ("negative", "negative", "positive")]
        run = comfyui_double.Executor(None, self, comfyui_double._wrappers("calc_cond_batch", model_options))
        out = run(self.inner_model, conds, x, sigma, model_options)
        return out[0] + (out[1] - out[0]) * self.cfg2 + (out[2] - out[1]) * self.cfg1


class Split(Guider):
    """Another model has the negative prompt."""

    def predict_noise(self, x, sigma, model_options, seed=None):
        wrappers, found = comfyui_double._wrappers("calc_cond_batch", model_options), []
        for model, cond in ((self.inner_model, "positive"), (copy(self.inner_model), "negative")):
            run = comfyui_double.Executor(lambda *of: self._calc_cond_batch(*of)[:1], self, wrappers)
            found += run(model, [self.conds[cond]], x, sigma, model_options)
        return found[1] + self.cfg * (found[0] - found[1])


Two.__module__ = Split.__module__ = "comfy.samplers"


@pytest.mark.parametrize(
    ("kind", "options", "weights", "is_split"),
    [
        (Guider, {}, (3, -2), False),
        (Two, {}, (-2, -1, 4), False),
        (Split, {}, (3, -2), True),
        (Guider, {"multigpu_clones": {"cuda:0": None, "cuda:1": None}}, (3, -2), True),
    ],
)
def test_a_guider_is_asked_what_it_makes_of_its_prompts(shown, model, kind, options, weights, is_split):
    kind.__module__ = "/programs/ComfyUI/comfy_extras/nodes_custom_sampler"  # as it loads them
    found = guidance_of(kind(model), options)
    assert (found.weights, found.is_split) == (pytest.approx(weights), is_split)
    kind.__module__ = "a_node"
    assert guidance_of(kind(model), options) == Guidance()
    kind.__module__ = "comfy.samplers"


@pytest.mark.parametrize("interval", ["auto", "1"])
def test_the_line_says_that_the_guidance_of_another_model_or_gpu_is_not_counted(shown, model, interval):
    Split(todo(model, interval=interval)).sample()
    assert shown[-1][0].endswith(
        "in 4 of 4 steps; another model or GPU has a part of the guidance, which is neither reduced nor counted: "
        "nothing is predicted"
    )
    Guider(todo(model, interval=interval)).sample()
    assert "less work" in shown[-1][0]
    assert "another model" not in shown[-1][0]


def test_an_error_counts_as_the_guidance_of_its_rows_has_it(shown, model):
    """Another node's guider is not asked, and its rows count as with a usual guidance."""

    def error(kind):
        kind(todo(model, factor_1="1", interval="auto", tolerance="0")).sample(steps=6)
        return float(re.search(r"error ([\d.]+), tolerance 0", shown[-1][0])[1])

    assert error(type("Other", (Guider,), {"__module__": "a_node"})) > 3 * error(Guider)


def test_steps_are_counted_in_a_schedule_that_rises(shown, model):
    """FlipSigmas turns it round."""
    calls, _ = lengths(model, lambda: Guider(todo(model, start=0.5)).sample(sigmas=[1e-4, 1, 4, 7, 10]))
    assert calls == [{WHOLE}, {WHOLE}, {REDUCED}, {REDUCED}]
    Guider(todo(model, factor_1="1", interval="2")).sample(sigmas=[1e-4, 1, 2.8, 4.6, 6.4, 8.2, 10])
    assert re.search(r"layers below level 1 computed in [45] of 6 steps", shown[-1][0])


@pytest.mark.parametrize("guidance", ["SAG", "PAG"])
@pytest.mark.parametrize(("predict", "split"), [("deep", True), ("whole", False)])
def test_a_replacement_that_may_keep_a_map_ends_predictions(shown, model, monkeypatch, guidance, split, predict):
    """SAG reads the map after each step. PAG replaces the attention in a call of its own."""
    patched = todo(model, factor_1="1", interval="2", predict=predict)
    replaced = {"patches_replace": {"attn1": {("middle", 0): lambda q, k, v, options: v}}}
    if guidance == "SAG":
        patched.model_options["transformer_options"].update(replaced)
    own = Guider.predict_noise

    def predict_noise(self, x, sigma, options, seed=None):
        first = own(self, x, sigma, options, seed)
        own(self, x, sigma, {"transformer_options": {**options["transformer_options"], **replaced}}, seed)
        return first

    monkeypatch.setattr(Guider, "predict_noise", predict_noise)
    calls, _ = lengths(model, lambda: Guider(patched, split=split).sample(steps=8))
    (line, _), *_ = shown
    if guidance == "SAG":
        assert all(calls)
        assert line.endswith("something else replaces a self-attention, and may read it: nothing is predicted")
    else:
        assert f"computed in {5 if predict == 'deep' else 6} of 8 steps" in line


@pytest.mark.parametrize("sigmas", [(2.0, 1.0), None])
def test_an_adapter_that_ends_beside_another_begins_the_predictions_anew(shown, model, sigmas):
    """A T2I adapter has no layers of a UNet, and adds to the same ones as another."""
    control = comfyui_double.Control(None, comfyui_double.Control(None), sigmas)
    patched = todo(model, factor_1="1", interval="2")
    Guider(patched, {"positive": [{"control": control}], "negative": [{}]}).sample(steps=10)
    assert f"layers below level 1 computed in {6 if sigmas is None else 7} of 10 steps" in shown[-1][0]


def test_steps_that_another_node_answers_outside_of_ours_are_not_counted_as_computed(shown, model):
    """LazyCache: our wrapper does not see such a step."""
    model.add_wrapper_with_key("predict_noise", "lazy", lambda run, x, *more: run(x, *more) if next(runs) else x)
    for settings, told in (
        ({"factor_1": "1", "interval": "2"}, "computed in 5 of 8 steps; the model was not called in 2"),
        ({}, "in 6 of 8 steps; the model was not called in 2"),
    ):
        runs = iter([True, True, True, True, False, True, False, True])
        Guider(todo(model, **settings)).sample(steps=8)
        assert told in shown[-1][0]


@pytest.mark.parametrize(
    ("name", "sigmas", "whole", "reduced"),
    [
        ("own_sigmas", None, 2, 1),
        ("adaptive", None, 2, 6),  # their number is unknown: the window goes by the noise
        ("euler", [10, 10, 7, 7, 7, 1, 0], 5, 1),  # nor is it known here
    ],
)
def test_calls_are_counted_where_they_are_no_steps(shown, model, monkeypatch, name, sigmas, whole, reduced):
    monkeypatch.setattr("todo_core.patching.planning.WORTH_PREDICTING", 0)
    guider = Guider(todo(model, start=0.5))
    calls, _ = lengths(model, lambda: guider.sample(sampler=sampler(name), sigmas=sigmas))
    assert calls == [{WHOLE}] * whole + [{REDUCED}] * reduced
    assert f"in {reduced} of {whole + reduced} model calls" in shown[-1][0]
    auto = todo(model, interval="auto", predict="deep", tolerance=1)
    Guider(auto).sample(sampler=sampler(name), steps=9, sigmas=sigmas)
    assert "computed in" not in shown[-1][0], "auto needs to know the schedule, and enough steps"


@pytest.mark.parametrize("name", ["model_sampling", "predictor"])
def test_the_timesteps_of_edm_models_are_those_of_stable_diffusion_with_as_much_noise(shown, model, name):
    assert detect(model).sampler.progress(200) == 0.8
    del model.model.model_sampling
    setattr(model.model, name, type("ModelSampling", (type("ModelSamplingContinuousEDM", (), {}),), {})())
    assert detect(model).sampler.progress(0) == pytest.approx(0.646), "a sigma of 1"


def test_the_last_of_two_nodes_counts_and_clones_have_their_own_settings(shown, model):
    first, second = todo(model), todo(todo(model), factor_1="4", node="8")
    assert lengths(model, Guider(first).sample)[0] == [{REDUCED}] * 4
    assert lengths(model, Guider(second).sample)[0] == [{(256, 16)}] * 4
    assert lengths(model, Guider(first.clone()).sample)[0] == [{REDUCED}] * 4
    assert [node for _, node in shown] == ["7", "8", "7"]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [([("input", 1)], {REDUCED, WHOLE}), ([("middle", 0), ("input", 4)], {REDUCED})],
    ids=["at level 1", "where nothing is reduced"],
)
def test_a_replaced_self_attention_keeps_its_keys_and_is_told_where_it_would_be_reduced(shown, blocks, expected):
    """PAG and SAG give the values back in the place of an output."""
    model = model_of(ldm_sd1().unet)
    patched = todo(model)
    replaced = dict.fromkeys(blocks, lambda q, k, v, _: v)
    patched.model_options["transformer_options"].update({"patches_replace": {"attn1": replaced}})
    calls, _ = lengths(model, Guider(patched).sample)
    assert calls == [expected] * 4
    assert ("another node replaces a self-attention: it is not reduced" in shown[0][0]) == (WHOLE in expected)


def test_the_line_is_shown_on_each_graph_around_the_node(shown, model):
    """The page shows no node inside a closed subgraph."""
    Guider(todo(model, node="12:5:3")).sample()
    assert [node for _, node in shown] == ["12:5:3", "12:5", "12"]
    assert len({text for text, _ in shown}) == 1


def test_each_part_of_the_line_has_short_lines_on_the_node(monkeypatch):
    """Classic nodes break long ones inside words."""
    told, page = [], SimpleNamespace(send_progress_text=lambda text, node: told.append(text))
    monkeypatch.setattr(compat, "server", lambda: page)
    compat.show_on_node("level 1 from 256 to 64 tokens (downsample) in 2 of 8 steps; 9 % less work", "7")
    assert told == ["level 1 from 256 to 64 tokens\n(downsample) in 2 of 8 steps;\n9 % less work"]


@pytest.mark.parametrize("area_first", [True, False])
def test_an_area_of_the_latent_does_not_end_the_reduction(shown, model, monkeypatch, area_first):
    """Its calls have a size at which nothing is to be reduced."""
    own = Guider.predict_noise

    def predict(self, x, sigma, options, seed=None):
        areas = [x[..., :8, :8], x] if area_first else [x, x[..., :8, :8]]
        return max((own(self, area, sigma, options, seed) for area in areas), key=torch.numel)

    monkeypatch.setattr(Guider, "predict_noise", predict)
    monkeypatch.setattr("todo_core.comfyui.sampling.detect", lambda model: replace(detect(model), trained_side=8))
    calls, _ = lengths(model, Guider(todo(model, factor_1="auto")).sample)
    assert [call for call in calls if call] == [{REDUCED}] * 4


def test_of_a_video_model_tokens_are_reduced_and_no_whole_steps_predicted(shown, model):
    """Stable Video Diffusion: each row is a frame, and its transformers are of another class."""
    for transformer in {site.transformer: None for site in detect(model).sites}:
        transformer.__class__ = type("SpatialVideoTransformer", (type(transformer),), {})
    Guider(todo(model, interval="auto")).sample(steps=8, shape=(3, 4, 16, 16))
    assert "(downsample) in 8 of 8 steps" in shown[0][0]
    assert "no whole step predicted: whole steps of a video model cannot be predicted" in shown[0][0]


def test_a_model_that_is_no_unet_passes_through_with_a_message(shown, caplog):
    patcher = comfyui_double.ModelPatcher(type("SD3", (nn.Module,), {})())
    patcher.model.diffusion_model = nn.Linear(1, 1)
    assert todo(patcher) is patcher
    reason = "SD3 cannot be reduced: its Linear is not a UNet of SD 1, SD 2 or SDXL"
    expected = f"ToDo leaves this model as it is: {reason}"
    assert shown == [(expected, "7")]
    assert expected in caplog.text


# the repository as a node --------------------------------------------------------------------------------------------


def _load_root(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        return module
    finally:
        for loaded in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
            del sys.modules[loaded]


def test_the_root_of_the_repository_has_the_nodes_and_a_prompts_workflow_gets_the_version_and_the_settings(shown):
    """Not where another node gives a value, or ComfyUI refuses it."""
    assert set(_load_root("/custom_nodes/ToDo-for-WebUI").NODE_CLASS_MAPPINGS) == set(NODE_CLASS_MAPPINGS)
    (note,) = sys.modules["server"].PromptServer.instance.on_prompt_handlers
    nodes = {
        "7": {"model": ["1", 0], "preset": "Fast", "factor_1": "preset", "interval": 2, "end": 0.7},
        "12:5": {"preset": "Fast", "end": 0.7, "settings": ["9", 0]},
        "9": {"method": "similarity", "ratio_1": 0.25},
        "10": {"preset": "Fast", "end": ["1", 0]},
        "11": {"preset": "none"},
        "13": {},
    }
    prompt = {n: {"class_type": "ToDoSettings" if n == "9" else "ToDo", "inputs": each} for n, each in nodes.items()}
    workflow = {"extra": {"ds": {}}}
    data = {"prompt": prompt, "extra_data": {"extra_pnginfo": {"workflow": workflow}}}
    assert note(data) is data
    fast = replace(Settings.preset("Fast"), interval=2, end=0.7).to_dict()
    similar = replace(Settings.preset("Fast"), method="similarity", ratio_1=0.25, end=0.7).to_dict()
    assert (fast.pop("passes"), similar.pop("passes")) == ("hires", "hires")
    told = {"version": __version__, "settings": {"7": fast, "12:5": similar}}
    assert workflow == {"extra": {"ds": {}, "ToDo": told}}
    prompt.clear()
    note(data)
    assert workflow == {"extra": {"ds": {}}}
    assert note({"prompt": {}}) == {"prompt": {}}


def test_elsewhere_the_root_has_no_nodes_and_imports_nothing():
    code = "import sys, runpy; found = runpy.run_path('__init__.py')"
    code += "; print(found['NODE_CLASS_MAPPINGS'], {'torch', 'todo_core', 'comfy'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.strip() == "{} set()"


# the example ----------------------------------------------------------------------------------------------------------


def test_the_example_is_the_same_in_both_forms_and_has_the_nodes_inputs():
    """The picture can be dropped on the canvas: it carries the workflow."""
    folder = ROOT / "example_workflows"
    workflow = json.loads((folder / "hires-fix.json").read_text())
    for each in folder.glob("*.json"):
        with Image.open(each.with_suffix(".jpg")) as preview:
            assert preview.format == "JPEG", "the picture that the page asks for"
        assert each.with_suffix(".jpg").stat().st_size < 40_000
    with Image.open(folder / "hires-fix.png") as picture:
        assert json.loads(picture.info["workflow"]) == workflow
        (run,) = (each for each in json.loads(picture.info["prompt"]).values() if each["class_type"] == "ToDo")
    (node,) = (each for each in workflow["nodes"] if each["type"] == "ToDo")
    project = re.search(r'^name = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    (note,) = (each for each in workflow["nodes"] if each["type"] == "MarkdownNote")  # the page's own: of no pack
    assert "whole steps" in note["widgets_values"][0].lower()
    others = [each for each in workflow["nodes"] if each is not note]
    packs = {each["type"]: each["properties"]["cnr_id"] for each in others if each["properties"]["ver"]}
    assert packs == {each["type"]: "comfy-core" for each in others} | {"ToDo": project}
    defaults = [inputs_of("ToDo")[name][1]["default"] for name in ("preset", *MAIN)]
    assert node["widgets_values"] == defaults
    assert [run["inputs"][name] for name in ("preset", *MAIN)] == defaults
    rows = 2 + len(defaults)  # the slots, then the widgets
    assert node["size"][1] >= rows * 24 + 5 * 20, "a classic node does not grow: five lines of text have room"
