"""With other features that reduce self-attention: nothing acts twice, and a comment says so."""

from __future__ import annotations

import pytest
from modules import script_callbacks, shared

from tests.todo_core.webui.webui_double import Processing, WebUI

OURS = {"factor_1": 2}


def generated(webui, *args, **changes):
    return webui.generate(Processing(steps=2, **changes), *args)


@pytest.mark.parametrize(("option", "value"), [("token_merging_ratio", 0.5), ("token_merging_ratio_hr", 0.25)])
def test_it_says_that_token_merging_is_on(webui, opts, option, value):
    setattr(opts, option, value)
    done = generated(webui, OURS)
    assert f"Token merging ({value:g}) is on: ToDo skips the layers that it merges" in done.comments
    assert "ToDo reduced the hires pass" in done.comments


@pytest.mark.parametrize("option", ["hypertile_enable_unet", "hypertile_enable_unet_secondpass"])
def test_hypertile_that_cuts_nothing_is_not_mentioned(webui, opts, option):
    """What it does is read from the layers: with tiles as large as the image, nothing."""
    setattr(opts, option, True)
    assert "HyperTile" not in generated(webui, OURS).comments


def test_without_other_reducers_nothing_is_said_of_them(webui):
    assert "is on: ToDo" not in generated(webui, OURS).comments


class Downsampling:
    """Like sd-webui-token-downsampling: ``process`` decides by option or attribute, and writes its infotext."""

    def __init__(self, script, acted):
        self.script, self.acted = script, acted

    def __getattr__(self, name):
        return getattr(self.script, name)

    def process(self, p, *args):
        factor = getattr(p, "token_downsampling_factor", shared.opts.token_downsampling_factor)
        self.acted.append(factor > 1)
        if factor > 1:
            p.extra_generation_params["ToDo factor"] = factor
        self.script.process(p, *args)


@pytest.fixture
def both(script, model, opts):
    """(webui with both extensions, list of whether the other acted); its factor is 2."""
    for name in ("token_downsampling_factor", "token_downsampling_factor2"):
        opts.add_option(name, shared.OptionInfo(1.0, name))
    opts.token_downsampling_factor = 2.0
    acted = []
    return WebUI(Downsampling(script, acted), model), acted


def test_it_takes_over_from_the_other_extension(both):
    webui, acted = both
    done = generated(webui, OURS)
    assert acted == [False]
    assert "ToDo factor 1: 2" in done.infotexts[0]
    assert "ToDo factor: " not in done.infotexts[0]
    assert "sd-webui-token-downsampling is on: ToDo switches it off for this image" in done.comments


def test_unticked_it_leaves_the_other_extension_alone(both):
    webui, acted = both
    assert generated(webui, False).comments == ""
    assert acted == [True]


def test_where_the_other_is_installed_and_off_nothing_is_said(both, opts):
    webui, _ = both
    opts.token_downsampling_factor = 1.0
    assert "downsampling is" not in generated(webui, OURS).comments


def test_its_axis_counts_as_on(both, opts):
    webui, acted = both
    opts.token_downsampling_factor = 1.0
    p = Processing(steps=2)
    p.token_downsampling_factor = 3.0
    webui.generate(p, OURS)
    assert acted == [False]


def test_its_values_without_the_extension_mean_nothing(webui, opts):
    opts.data["token_downsampling_factor"] = 2.0  # config.json keeps them after an uninstall
    assert "sd-webui-token-downsampling" not in generated(webui, OURS).comments


@pytest.fixture
def paste(module, opts):
    def run(**params):
        for callback in script_callbacks.callbacks_infotext_pasted:
            callback("", params)
        return params

    return run


SAME = {"ToDo method": "similarity", "ToDo target": "all", "ToDo random": "False"}


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
        ({"Steps": "20"}, None),
        ({"ToDo": "cluster"}, {"ToDo method": "cluster"}),  # of an older image: SD.Next expects a number there
        ({"ToDo": "0.5"}, None),
    ],
)
def test_the_webuis_token_merging_is_pasted_as_our_settings_alone_or_stays(paste, theirs, ours):
    assert paste(**theirs) == (theirs if ours is None else ours)


@pytest.mark.parametrize("option", ["token_merging_ratio", "token_merging_ratio_hr"])
def test_where_the_webui_merges_anyway_pasting_is_left_to_it(paste, opts, option):
    params = {"Token merging ratio hr": "0.5"}
    setattr(opts, option, 0.5)
    assert paste(**params) == params
