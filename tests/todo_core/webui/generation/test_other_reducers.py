"""With other features that reduce self-attention: nothing acts twice, and a comment says so."""

import pytest
from modules import script_callbacks, shared

from tests.todo_core.webui.webui_double import Processing, WebUI

OURS = {"factor_1": 2}


@pytest.mark.parametrize(("option", "value"), [("token_merging_ratio", 0.5), ("token_merging_ratio_hr", 0.25)])
def test_it_says_that_token_merging_is_on(webui, opts, option, value):
    setattr(opts, option, value)
    done = webui.generate(Processing(steps=2), OURS)
    assert f"Token merging ({value:g}) is on: ToDo skips the layers that it merges" in done.comments
    assert "ToDo reduced the hires pass" in done.comments


class Downsampling:
    """Like sd-webui-token-downsampling: ``process`` decides by option or attribute, and writes its infotext."""

    def __init__(self, script):
        self.script = script

    def __getattr__(self, name):
        return getattr(self.script, name)

    def process(self, p, *args):
        factor = getattr(p, "token_downsampling_factor", shared.opts.token_downsampling_factor)
        if factor > 1:
            p.extra_generation_params["ToDo factor"] = factor


@pytest.mark.parametrize(
    ("installed", "factor", "of_an_axis", "ours", "acts"),
    [
        (True, 2.0, {}, OURS, "ToDo, told"),
        (True, 2.0, {}, False, "theirs"),
        (True, 1.0, {}, OURS, "ToDo"),
        (True, 1.0, {"token_downsampling_factor": 3.0}, OURS, "ToDo, told"),
        (False, 2.0, {}, OURS, "ToDo"),  # config.json keeps the value after an uninstall
    ],
)
def test_of_the_other_extension_and_ours_one_acts(script, model, opts, installed, factor, of_an_axis, ours, acts):
    for name in ("token_downsampling_factor", "token_downsampling_factor2") if installed else ():
        opts.add_option(name, shared.OptionInfo(1.0, name))
    opts.token_downsampling_factor = factor
    p = Processing(steps=2)
    vars(p).update(of_an_axis)
    done = WebUI(Downsampling(script) if installed else script, model).generate(p, ours)
    assert ("ToDo factor: " in done.infotexts[0]) == (acts == "theirs")
    assert ("ToDo factor 1: 2" in done.infotexts[0]) == ("ToDo" in acts)
    is_told = "sd-webui-token-downsampling is on: ToDo switches it off for this image" in done.comments
    assert is_told == ("is on" in done.comments) == ("told" in acts)


@pytest.fixture
def paste(module, opts):
    def run(**params):
        for callback in script_callbacks.callbacks_infotext_pasted:
            callback("", params)
        return params

    return run


SAME = {"ToDo method": "similarity", "ToDo target": "all", "ToDo random": "False", "ToDo interval": "1"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"Token merging ratio hr": "0.5", "Steps": "20"}, SAME | {"Steps": "20"}),
        ({"Token merging ratio hr": "0.9"}, SAME | {"ToDo ratio 1": "0.75"}),
        ({"Token merging ratio": "0.3"}, SAME | {"ToDo ratio 1": "0.3", "ToDo passes": "first"}),
        ({"Token merging ratio": "0.5", "Token merging ratio hr": "0.5"}, SAME | {"ToDo passes": "all"}),
        ({"Token merging ratio": "0.2", "Token merging ratio hr": "0.5"}, None),  # one ratio cannot say both
        ({"Token merging ratio hr": "0.5", "ToDo method": "downsample"}, None),
        ({"Token merging ratio hr": "0.5", "ToDo factor": "2.0"}, None),
        ({"ToDo": "0.5"}, None),  # SD.Next's own
    ],
)
def test_the_webuis_token_merging_is_pasted_as_our_settings_alone_or_stays(paste, theirs, ours):
    assert paste(**theirs) == (theirs if ours is None else ours)


@pytest.mark.parametrize("option", ["token_merging_ratio", "token_merging_ratio_hr"])
def test_where_the_webui_merges_anyway_pasting_is_left_to_it(paste, opts, option):
    params = {"Token merging ratio hr": "0.5"}
    setattr(opts, option, 0.5)
    assert paste(**params) == params
