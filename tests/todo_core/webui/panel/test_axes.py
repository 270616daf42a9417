"""Axes of the X/Y/Z plot, on the WebUI's own AxisOption, reduced to what it keeps."""

from __future__ import annotations

import json
from copy import copy
from types import SimpleNamespace

import pytest

from tests.models import LatentDiffusion, shallow_ldm_unet
from tests.todo_core.webui.webui_double import NOTHING_PREDICTED, Processing, WebUI
from todo_core import SETTINGS, SettingsError, __version__
from todo_core.settings import BUILT_IN


class AxisOption:
    def __init__(self, label, type, apply, format_value=None, confirm=None, cost=0.0, choices=None, prepare=None):
        self.label, self.type, self.apply, self.confirm, self.choices = label, type, apply, confirm, choices


@pytest.fixture
def axes(module):
    """label -> axis, registered as the WebUI does it: before each building of the page."""
    from modules import script_callbacks, scripts

    grid = SimpleNamespace(AxisOption=AxisOption, axis_options=[AxisOption("Nothing", str, None)])
    script_class = type("Script", (), {"__module__": "xyz_grid.py"})
    scripts.scripts_data[:] = [SimpleNamespace(script_class=script_class, module=grid)]
    for _ in ("start", "Reload UI"):
        for callback in script_callbacks.callbacks_before_ui:
            callback()
    scripts.scripts_data.clear()
    labels = [axis.label for axis in grid.axis_options]
    assert len(set(labels)) == len(labels), "registered twice"
    return {axis.label: axis for axis in grid.axis_options}


@pytest.fixture(scope="module")
def model():
    return LatentDiffusion(shallow_ldm_unet(), image_size=64)


def test_there_is_an_axis_for_each_setting_the_preset_and_on_or_off(axes):
    wanted = {f"[ToDo] {setting.label}" for setting in SETTINGS.values()} | {"[ToDo] Preset", "[ToDo] Enabled"}
    assert wanted | {"Nothing"} == set(axes)


def test_choices_are_the_declared_ones(axes):
    assert axes["[ToDo] Method"].choices() == list(SETTINGS["method"].choices)
    assert axes["[ToDo] Preset"].choices() == list(BUILT_IN)
    assert axes["[ToDo] Random destinations"].choices() == ["True", "False"]


@pytest.mark.parametrize(
    ("label", "kind"),
    [("End", float), ("Ratio, level 1", float), ("Cell width", int), ("Factor, level 1", str), ("Method", str)],
)
def test_a_range_is_read_where_every_value_is_a_number(axes, label, kind):
    """The WebUI reads "0.1-0.5 [3]" for float and "1-4" for int, and takes any other text as it stands."""
    assert axes[f"[ToDo] {label}"].type is kind


@pytest.mark.parametrize(
    ("label", "good", "bad"),
    [
        ("[ToDo] Factor, level 1", ["auto", "2", "3"], ["0.5", "much"]),
        ("[ToDo] Ratio, level 1", [0.0, 0.5], [1.5]),
        ("[ToDo] Cell width", [1, 2], [0]),
        ("[ToDo] Method", ["cluster"], ["upsample"]),
        ("[ToDo] Enabled", ["True", "False"], ["perhaps"]),
        ("[ToDo] Preset", ["ToMe paper"], ["no such"]),
    ],
)
def test_values_are_checked_before_the_first_image(axes, label, good, bad):
    axes[label].confirm(None, [axes[label].type(value) for value in good])
    for value in bad:
        with pytest.raises(SettingsError):
            axes[label].confirm(None, [axes[label].type(value)])


def cells(axes, script, model, p, args, *pairs):
    """The infotext parameters of one cell for each tuple of values."""
    webui, found = WebUI(script, model), []
    for values in zip(*(values for _, values in pairs), strict=True):
        pc = copy(p)  # as the WebUI does: what p refers to is shared by all cells
        for (label, _), value in zip(pairs, values, strict=True):
            axes[label].apply(pc, axes[label].type(value), values)
        params = dict(webui.generate(pc, *args).extra_generation_params)
        assert ("ToDo version" in params) == ("ToDo method" in params)
        params.pop("ToDo version", None)
        found.append(params)
    return found


def test_a_cells_infotext_tells_its_own_values(axes, script, model):
    p = Processing(steps=2)
    pairs = [("[ToDo] Factor, level 1", ["2", "1", "4"]), ("[ToDo] End", ["1", "1", "0.5"])]
    found = cells(axes, script, model, p, [{"enabled": True, "phase": "fixed"}], *pairs)
    assert found == [
        {"ToDo method": "downsample", "ToDo factor 1": "2", "ToDo phase": "fixed"} | NOTHING_PREDICTED,
        {},
        {"ToDo method": "downsample", "ToDo factor 1": "4", "ToDo phase": "fixed", "ToDo end": "0.5"}
        | NOTHING_PREDICTED,
    ]


def test_an_axis_acts_with_the_panel_unticked_and_enabled_switches_off(axes, script, model):
    p = Processing(steps=2)
    pairs = [("[ToDo] Factor, level 1", ["2", "2"]), ("[ToDo] Enabled", ["True", "False"])]
    done = {"ToDo method": "downsample", "ToDo factor 1": "2"} | NOTHING_PREDICTED
    assert cells(axes, script, model, p, [False], *pairs) == [done, {}]


def test_a_preset_replaces_what_the_panel_says(axes, script, model, monkeypatch):
    monkeypatch.setattr(model, "image_size", 8)  # so that auto reduces
    p = Processing(steps=2)
    found = cells(axes, script, model, p, [{"factor_1": 2}], ("[ToDo] Preset", ["ToMe paper", "ToDo paper"]))
    assert found[0] == {"ToDo method": "similarity", "ToDo target": "all"}
    assert found[1].items() >= {"ToDo method": "downsample", "ToDo phase": "fixed", "ToDo resample": "nearest"}.items()


def test_nothing_stays_for_the_next_generation(axes, script, model):
    p = Processing(steps=2)
    cells(axes, script, model, p, [False], ("[ToDo] Factor, level 1", ["2"]))
    done = WebUI(script, model).generate(p, False)
    assert done.extra_generation_params == {}


def test_the_api_takes_a_preset_and_overrides(script, model):
    p = Processing(steps=2)
    done = WebUI(script, model).generate(p, {"preset": "ToMe paper", "ratio_1": 0.25})
    params = {"ToDo method": "similarity", "ToDo target": "all", "ToDo ratio 1": "0.25", "ToDo version": __version__}
    assert done.extra_generation_params == params
    done = WebUI(script, model).generate(Processing(), {"preset": "no such"})
    assert "preset = 'no such' is not possible" in done.comments


def test_a_plot_tells_the_status_of_each_cell(axes, script, model):
    """As the WebUI's plot does it: copies of one p, and a copy of the first cell's result, whose lists are replaced."""
    p, webui, done = Processing(steps=1), WebUI(script, model), []
    for value in ("1", "2"):
        cell = copy(p)
        axes["[ToDo] Factor, level 1"].apply(cell, value, ["1", "2"])
        done.append(webui.generate(cell, False))
        plot = copy(done[0])
    plot.infotexts = [cell.infotexts[0] for cell in done]
    answer = json.loads(plot.js())
    assert len(answer["infotexts"]) == 2
    assert answer["comments"] == plot.comments
    first, second = plot.comments.splitlines()
    assert first.startswith("ToDo with Factor, level 1 = 1: found nothing to reduce")
    assert second.startswith("ToDo with Factor, level 1 = 2: reduced the hires pass: level 1 from 256 to 64")


def test_a_plot_whose_first_cell_is_off_tells_the_others(axes, script, model):
    p, webui, plot = Processing(steps=1), WebUI(script, model), None
    for value in ("False", "True"):
        cell = copy(p)
        axes["[ToDo] Enabled"].apply(cell, value, ["False", "True"])
        plot = plot or copy(webui.generate(cell, {"factor_1": 2}))
    webui.generate(cell, {"factor_1": 2})
    assert "ToDo with Enabled = True: reduced the hires pass" in plot.comments
