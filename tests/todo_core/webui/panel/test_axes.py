"""Axes of the X/Y/Z plot, on the WebUI's own AxisOption, reduced to what it keeps."""

import json
from copy import copy
from types import SimpleNamespace

import pytest

from tests.todo_core.webui.webui_double import NOTHING_PREDICTED, Processing, WebUI
from todo_core import SETTINGS
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
    labels = ["Preset", "Enabled", *(setting.label for setting in SETTINGS.values())]
    assert [axis.label for axis in grid.axis_options] == ["Nothing", *(f"[ToDo] {label}" for label in labels)]
    return {axis.label: axis for axis in grid.axis_options}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))
def test_the_axis_of_a_setting_has_its_choices_and_takes_its_values(axes, setting):
    """Where the type equals float, the WebUI reads "0.1-0.5 [3]", for int "1-4"; other text it takes as it stands."""
    axis = axes[f"[ToDo] {setting.label}"]
    kind = {"number": float, "share": float, "integer": int, "factor": int}.get(setting.kind, str)
    listed = {"choice": [*setting.choices], "flag": ["True", "False"]}.get(setting.kind)
    assert (axis.type, axis.choices and axis.choices()) == (kind, listed)
    taken = listed or [setting.format(value) for value in (setting.default, 4 if setting.maximum > 4 else 0.65)]
    axis.confirm(None, [axis.type(text) for text in taken])
    for wrong in ("-9", "x"):
        with pytest.raises(ValueError, match=setting.label):
            axis.confirm(None, [axis.type(taken[0]), axis.type(wrong)])


@pytest.mark.parametrize(("label", "good"), [("Enabled", ["True", "False"]), ("Preset", list(BUILT_IN))])
def test_values_of_the_other_axes_are_checked_before_the_first_image_too(axes, label, good):
    axis = axes[f"[ToDo] {label}"]
    assert axis.choices() == good
    axis.confirm(None, good)
    with pytest.raises(ValueError, match="is not possible"):
        axis.confirm(None, [*good, "perhaps"])


def cells(axes, script, model, args, **values_of):
    """The infotext parameters of one cell for each tuple of values; nothing stays for the next generation."""
    p, webui, found = Processing(steps=2), WebUI(script, model), []
    for values in zip(*values_of.values(), strict=True):
        pc = copy(p)  # as the WebUI does: what p refers to is shared by all cells
        for name, value in zip(values_of, values, strict=True):
            axis = axes["[ToDo] " + (SETTINGS[name].label if name in SETTINGS else name)]
            axis.apply(pc, axis.type(value), values)
        params = dict(webui.generate(pc, args).extra_generation_params)
        assert ("ToDo version" in params) == ("ToDo method" in params)
        params.pop("ToDo version", None)
        found.append(params)
    assert webui.generate(p, False).extra_generation_params == {}
    return found


WINDOW = {"ToDo start": "auto (0.3)", "ToDo end": "auto (1)"}
REDUCED = {"ToDo method": "downsample", "ToDo factor 1": "2"} | WINDOW | NOTHING_PREDICTED
FIXED = REDUCED | {"ToDo phase": "fixed"}
SIMILAR = {"ToDo method": "similarity", "ToDo target": "all", "ToDo interval": "1", "ToDo start": "0", "ToDo end": "1"}


@pytest.mark.parametrize(
    ("panel", "values", "found"),
    [
        (
            {"phase": "fixed"},
            {"factor_1": ["2", 1, 4], "end": ["auto", 1.0, 0.7 + 1e-16]},  # of ranges, the WebUI gives numbers
            [FIXED, {}, FIXED | {"ToDo factor 1": "4", "ToDo end": "0.7"}],
        ),
        (False, {"factor_1": ["2", "2"], "Enabled": ["True", "False"]}, [REDUCED, {}]),
        ({"factor_2": 3, "preset": "ToDo paper"}, {"Preset": ["ToMe paper"]}, [SIMILAR]),
        ({"preset": "ToMe paper", "ratio_1": 0.25}, {"sx": [4]}, [SIMILAR | {"ToDo ratio 1": "0.25", "ToDo sx": "4"}]),
    ],
    ids=["values", "on and off", "preset", "preset of a request"],
)
def test_a_cells_infotext_tells_its_own_values(axes, script, model, panel, values, found):
    """A value of an axis replaces that of the panel, and acts with the panel unticked."""
    assert cells(axes, script, model, panel, **values) == found


@pytest.mark.parametrize(
    ("label", "values", "args", "told"),
    [
        ("Factor, level 1", "12", False, ["1: found nothing to reduce", "2: reduced the hires pass: 7 %"]),
        ("Enabled", ["False", "True"], {"factor_1": 2}, ["True: reduced the hires pass"]),
    ],
)
def test_a_plot_tells_the_status_of_each_cell(axes, script, model, label, values, args, told):
    """The WebUI makes copies of one p, and a copy of the first cell's result, which may be off."""
    p, webui, results = Processing(steps=1), WebUI(script, model), []
    for value in values:
        cell = copy(p)
        axes[f"[ToDo] {label}"].apply(cell, value, values)
        results.append(webui.generate(cell, args))
    plot = copy(results[0])
    plot.infotexts = [text for result in results for text in result.infotexts]
    answer = json.loads(plot.js())
    assert len(answer["infotexts"]) == 2
    assert answer["comments"] == plot.comments
    for line, expected in zip(plot.comments.splitlines(), told, strict=True):
        assert line.startswith(f"ToDo with {label} = {expected}")
