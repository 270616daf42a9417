"""The declared settings: what each takes and refuses, what is used when, and that no way of writing them loses any."""

import copy
import dataclasses
import json
import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.errors import SettingsError
from todo_core.reduction import downsampling
from todo_core.settings import SETTINGS, Settings, declaration

HUGE = 10**400  # beyond every float
FACTOR = "'auto' or a whole number from 1 to 8"
SHARE, RATIO, SIDE = "'auto' or a number from 0 to 1", "a number from 0 to 0.99", "a whole number from 1 to 16"
SEED = "None or -1 (each image's own seed) or a whole number >= 0"
METHODS, RESAMPLES = ["downsample", "similarity", "cluster"], ["nearest", "nearest-exact", "bilinear", "bicubic"]
NO_NUMBER = [True, "0.5", "", None, math.inf, -math.inf, math.nan, 1j, [0.5], HUGE]
NO_FACTOR, NO_SIDE = [*NO_NUMBER, "Auto", 0, 0.99, 1.5, 9, -2], [*NO_NUMBER, "2", 0, 2.5, 17]
NO_RATIO, NO_SHARE = [*NO_NUMBER, "auto", -0.01, 1], [*NO_NUMBER, -0.1, 1.01]
NO_CHOICE, NO_FLAG = ["tome", "", "Downsample ", None, 0, True, ["all"]], [0, 1, 1.0, "True", "", None]
FLAG = ([True, False], NO_FLAG, "True or False")
FACTORS = (["auto", 1, 3, 8], NO_FACTOR, FACTOR)
RATIOS = ([0.0, 0.01, 0.75, 0.99], NO_RATIO, RATIO)
# name: (default, taken, refused, allowed)
TABLE = {
    "method": ("downsample", [*METHODS, "none"], NO_CHOICE, None),
    "target": ("keys/values", ["keys/values", "all"], NO_CHOICE, None),
    "factor_1": ("auto", *FACTORS),
    "factor_2": ("auto", *FACTORS),
    "ratio_1": (0.5, *RATIOS),
    "ratio_2": (0.0, *RATIOS),
    "resample": ("nearest-exact", [*RESAMPLES, "area", "max"], NO_CHOICE, None),
    "phase": ("rotate", ["rotate", "fixed"], NO_CHOICE, None),
    "start": ("auto", ["auto", 0.0, 0.5], NO_SHARE, SHARE),
    "end": ("auto", ["auto", 0.01, 1.0], NO_SHARE, SHARE),
    "window": ("steps", ["steps", "noise"], NO_CHOICE, None),
    "afterwards": ("none", ["none", *METHODS], NO_CHOICE, None),
    "passes": ("hires", ["hires", "first", "all"], NO_CHOICE, None),
    "sx": (2, [1, 16], NO_SIDE, SIDE),
    "sy": (2, [1, 16], NO_SIDE, SIDE),
    "random": (True, *FLAG),
    "seed": (None, [None, 0, 2**70 + 1, 10**300], [-2, 1.5, True, "7", math.nan, math.inf, HUGE], SEED),
    "attn": (True, *FLAG),
    "crossattn": (False, *FLAG),
    "mlp": (False, *FLAG),
    "interval": ("auto", *FACTORS),
    "predict": ("auto", ["auto", "deep", "whole"], NO_CHOICE, None),
    "tolerance": (0.08, [0.0, 0.5, 1.0], [*NO_SHARE, "auto"], "a number from 0 to 1"),
}
DEFAULTS = {name: default for name, (default, *_) in TABLE.items()}
DOWNSAMPLE = {"ToDo method": "downsample"}

# AUTOMATIC1111: modules/infotext_utils.py
HOST_PAIR = re.compile(r'\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)')
HOST_SIZE = re.compile(r"^(\d+)x(\d+)$")


@st.composite
def valid_settings(draw):
    """Any settings that should be accepted, each field given or left out."""
    factors, ratios, sides = st.just("auto") | st.integers(1, 8), st.floats(0, 0.99), st.integers(1, 16)
    fields = {name: st.sampled_from(taken) for name, (_, taken, *_) in TABLE.items()}
    fields |= {"factor_1": factors, "factor_2": factors, "interval": factors, "seed": st.none() | st.integers(0, 2**64)}
    fields |= {"ratio_1": ratios, "ratio_2": ratios, "sx": sides, "sy": sides, "tolerance": st.floats(0, 1)}
    share, auto = st.floats(0, 1), st.just("auto")
    window = st.lists(share, min_size=2, max_size=2, unique=True).map(sorted) | st.just([0.0, 1.0])
    window |= st.tuples(auto, auto | share.filter(bool)) | st.tuples(share.filter(lambda start: start < 1), auto)
    values = draw(st.fixed_dictionaries({}, optional=fields))
    values["start"], values["end"] = draw(window)
    filled = DEFAULTS | values
    if filled["method"] != "none" and "similarity" in (filled["method"], filled["afterwards"]):
        cap = 1 - 1 / (filled["sx"] * filled["sy"])
        values |= {name: min(filled[name], cap) for name in ("ratio_1", "ratio_2")}
    return Settings(**values)


def refused(make=Settings, /, **values):
    with pytest.raises(SettingsError) as caught:
        make(**values)
    return caught.value


def test_the_settings_are_those_of_the_table_with_their_defaults():
    assert list(SETTINGS) == list(TABLE)
    assert Settings().to_dict() == DEFAULTS
    assert [type(value) for value in Settings().to_dict().values()] == [*map(type, DEFAULTS.values())]
    assert len({declared.label for declared in SETTINGS.values()}) == len(TABLE)
    assert all(declared.help.endswith(".") for declared in SETTINGS.values())


@pytest.mark.parametrize("name", TABLE)
def test_a_setting_takes_its_values_and_names_itself_and_what_is_allowed_with_each_other(name):
    _, taken, others, allowed = TABLE[name]
    allowed = allowed or ", ".join(map(repr, taken))
    for value in taken:
        assert getattr(Settings(**{name: value}), name) == value
    for value in others:
        error = refused(**{name: value})
        assert (error.field, error.allowed) == (name, allowed)
        assert error.value is value
        if value is not HUGE:
            assert str(error) == f"{name} = {value!r} is not possible; allowed: {allowed}"


def test_numbers_are_kept_in_their_fields_own_type():
    settings = Settings(factor_1=2.0, ratio_1=0, sx=3.0, seed=7.0)
    kept = [settings.factor_1, settings.ratio_1, settings.sx, settings.seed]
    assert [(value, type(value)) for value in kept] == [(2, int), (0, float), (3, int), (7, int)]
    assert hash(settings) == hash(Settings(factor_1=2, ratio_1=0.0, sx=3, seed=7))
    assert Settings(seed=-1).seed is Settings.parse({"seed": "-1"}).seed is None


def test_numbers_of_numpy_are_numbers_and_arrays_are_refused():
    taken = {"factor_1": np.int64(2), "tolerance": np.float32(0.25), "seed": np.array(7), "random": np.bool_(False)}
    settings = Settings(**taken)
    kept = [getattr(settings, name) for name in taken]
    assert [(value, type(value)) for value in kept] == [(2, int), (0.25, float), (7, int), (False, bool)]
    for name in SETTINGS:
        assert refused(**{name: np.array([2, 3])}).field == name


@pytest.mark.parametrize("make", [Settings, lambda **values: Settings.parse(values)])
def test_another_name_is_refused_with_the_nearest_and_all_names(make):
    assert refused(lambda: Settings("downsample")).field == "settings"
    assert issubclass(SettingsError, ValueError), "for callers that know no other"
    nearest = {"factor": "factor_1", "ratio2": "ratio_2", "metod": "method", "Method": "method", "factor_3": "factor_1"}
    nearest["args"] = "target"
    for name in (*nearest, "", "self"):
        error = refused(make, **{name: 1})
        assert (error.field, error.value, error.allowed) == (name, 1, ", ".join(TABLE))
        told = f" (did you mean {nearest[name]}?)" if name in nearest else ""
        assert str(error) == f"{name!r} is not a setting{told}; the settings are: {error.allowed}"


@pytest.mark.parametrize(("start", "end"), [(0.5, 0.5), (0.7, 0.3), (1, 1), (0, 0)])
def test_the_start_must_lie_before_the_end(start, end):
    error = refused(start=start, end=end)
    assert (error.field, error.value, error.allowed) == ("start", start, f"a value below the end, {end:g}")


@pytest.mark.parametrize("name", ["ratio_1", "ratio_2"])
@pytest.mark.parametrize(("sx", "sy", "over", "cap"), [(2, 2, 0.76, 0.75), (3, 2, 0.84, 0.833333), (1, 2, 0.51, 0.5)])
def test_a_ratio_that_would_take_destinations_away_is_refused_where_similarity_is_used(name, sx, sy, over, cap):
    at = {"sx": sx, "sy": sy, "ratio_1": 0.1}
    ends = {"afterwards": "similarity", "end": 0.7}
    for used in ({"method": "similarity"}, ends):
        error = refused(**{**at, **used, name: over})
        assert (error.field, error.value) == (name, over)
        assert error.allowed == f"at most {cap:g}: one token of each {sx} x {sy} cell stays"
        assert getattr(Settings(**{**at, **used, name: 1 - 1 / (sx * sy)}), name) == 1 - 1 / (sx * sy)
    for method in ({"method": "cluster"}, {"afterwards": "similarity"}, {**ends, "method": "none"}):
        assert getattr(Settings(**{**at, **method, name: over}), name) == over


def test_settings_cannot_be_changed_but_replaced_by_others_that_are_checked_too():
    first = Settings(method="similarity", start=0.3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.sx = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del first.sx
    assert dataclasses.replace(first, sx=4) == Settings(method="similarity", start=0.3, sx=4) != first
    for field, change in {"sx": {"sx": 2.5}, "start": {"end": 0.2}, "ratio_1": {"ratio_1": 0.8}, "x": {"x": 1}}.items():
        assert refused(lambda **changes: dataclasses.replace(first, **changes), **change).field == field


@given(valid_settings())
@examples(300)
def test_no_way_of_writing_them_down_loses_anything(settings):
    assert copy.copy(settings) == copy.deepcopy(settings) == pickle.loads(pickle.dumps(settings)) == settings
    assert Settings(**json.loads(json.dumps(settings.to_dict()))) == settings
    text = {name: declared.format(getattr(settings, name)) for name, declared in SETTINGS.items()}
    assert all(isinstance(value, str) for value in text.values())
    assert Settings.parse(text) == settings

    infotext, by_key = settings.to_infotext(), {declared.infotext_key: name for name, declared in SETTINGS.items()}
    assert infotext["ToDo method"] == settings.method
    changed = {name for name in settings.used if getattr(settings, name) != DEFAULTS[name]}
    assert {by_key[key] for key in infotext} == changed | {"method"}
    line = ", ".join(f"{k}: {v}" for k, v in ({"Steps": "20", "Size": "8x8"} | infotext | {"Version": "v1.10"}).items())
    read = dict(HOST_PAIR.findall(line))
    assert {key: value for key, value in read.items() if key.startswith("ToDo")} == infotext
    # the WebUI takes "2x3" apart into two keys, and strips a value's quotes
    assert not any(HOST_SIZE.match(value) or '"' in value for value in infotext.values())
    kept = {name: getattr(settings, name) if name in settings.used else DEFAULTS[name] for name in TABLE}
    assert Settings.from_infotext(infotext).to_dict() == Settings.from_infotext(read).to_dict() == kept


@pytest.mark.parametrize(
    ("infotext", "changed"),
    [
        ({}, None),
        ({"Steps": "20", "Token merging ratio": "0.5"}, None),
        # another extension's, and SD.Next's own
        ({"ToDo factor": "2", "ToDo disable after": "0.5"}, None),
        ({"ToDo factor": "2", "ToDo disable after": "0.5", "ToDo method": "cluster"}, {"method": "cluster"}),
        ({"ToDo": "0.5"}, None),
        # auto with what it has used is auto
        ({"ToDo version": "1.0.0", "ToDo interval": "auto (7 of 10 and 5 of 7)"}, {}),
        (DOWNSAMPLE | {"ToDo start": "auto (0.3)", "ToDo end": "0.7"}, {"end": 0.7}),
        (DOWNSAMPLE | {"ToDo factor 1": "auto (2)", "ToDo interval": "auto (6 of 10)"}, {}),
        (DOWNSAMPLE | {"ToDo predict": "deep", "ToDo interval": 3}, {"predict": "deep", "interval": 3}),
    ],
)
def test_infotext_of_ours_and_of_others_is_read(infotext, changed):
    assert Settings.from_infotext(infotext) == (None if changed is None else Settings(**changed))


@pytest.mark.parametrize("factor", ["half", "1.5", "auto, (2)"])
def test_an_infotext_with_an_unknown_value_is_refused(factor):
    assert refused(lambda: Settings.from_infotext(DOWNSAMPLE | {"ToDo factor 1": factor})).field == "factor_1"


TEXTS = {
    "random": {"True": True, "false": False, False: False},
    "mlp": {" TRUE ": True},
    "factor_1": {"3": 3, "3.0": 3, "auto": "auto", 2.0: 2},
    "factor_2": {" auto ": "auto"},
    "ratio_1": {"1e-2": 0.01},
    "end": {".5": 0.5, " auto": "auto"},
    "sx": {"4": 4, "4.0": 4},
    "seed": {"": None, "none": None, "None": None, "12345678901234567890": 12345678901234567890, None: None},
    "method": {"none": "none"},
    "target": {" all": "all"},
}
NO_TEXTS = {
    "random": ["yes", "", "1"],
    "factor_1": ["", "nan", "inf", "0.5", "9" * 400],
    "ratio_1": ["half", "--1", "True", "²"],
    "sx": ["2.5", "", "9" * 5000],
    "seed": ["-2", "auto"],
    "method": ["ToMe", ""],
}


def test_parse_reads_text_and_leaves_values_and_refuses_what_means_nothing():
    for name, text, value in [(name, *pair) for name, pairs in TEXTS.items() for pair in pairs.items()]:
        parsed = getattr(Settings.parse({name: text}), name)
        assert (parsed, type(parsed)) == (value, type(value)), (name, text)
    for name, text in [(name, text) for name, texts in NO_TEXTS.items() for text in texts]:
        assert refused(lambda **values: Settings.parse(values), **{name: text}).field == name


ACTING = {"method", "passes", "interval", "predict", "tolerance"}
ALWAYS, KEPT = ACTING | {"target", "start", "end"}, {"factor_1", "factor_2", "resample", "phase"}
LEFT, ENDS = {"ratio_1", "ratio_2"}, {"window", "afterwards"}
CELL, MODULES = {"sx", "sy", "random"}, {"attn", "crossattn", "mlp"}


@pytest.mark.parametrize(
    ("values", "used"),
    [
        ({}, ALWAYS | KEPT),
        ({"interval": 2, "start": 0, "end": 1}, ALWAYS - {"tolerance"} | KEPT),
        ({"interval": 1}, ALWAYS - {"predict"} | KEPT),
        ({"interval": 1, "start": 0, "end": 1}, ALWAYS - {"predict", "tolerance"} | KEPT),
        ({"method": "none"}, {"method"}),
        ({"method": "none", "afterwards": "similarity", "target": "all", "start": 0.1, "end": 0.5}, {"method"}),
        ({"resample": "nearest"}, ALWAYS | KEPT),
        ({"resample": "area"}, ALWAYS | KEPT - {"phase"}),
        ({"target": "all"}, ALWAYS | KEPT | MODULES),
        ({"method": "similarity"}, ALWAYS | LEFT | CELL | {"seed"}),
        ({"method": "similarity", "random": False}, ALWAYS | LEFT | CELL),
        ({"method": "cluster"}, ALWAYS | LEFT),
        ({"start": 0.1}, ALWAYS | KEPT | {"window"}),
        ({"end": 0.7}, ALWAYS | KEPT | ENDS),
        ({"afterwards": "similarity", "end": 0.7}, ALWAYS | KEPT | LEFT | CELL | {"seed"} | ENDS),
        ({"factor_1": 1, "factor_2": 1, "target": "all"}, ACTING | {"factor_1", "factor_2"}),
        ({"method": "similarity", "ratio_1": 0.0}, ACTING | LEFT),
        ({"method": "similarity", "ratio_1": 0.0, "ratio_2": 0.5}, ALWAYS | LEFT | CELL | {"seed"}),
    ],
)
def test_used_are_the_settings_that_can_matter(values, used):
    assert set(Settings(**values).used) == used


def test_where_a_program_ships_without_its_sources_only_the_help_is_missing(monkeypatch):
    def no_source(of):
        raise OSError("could not get source code")

    monkeypatch.setattr(declaration.inspect, "getsource", no_source)
    bare = {name: dataclasses.replace(declared, used=None) for name, declared in declaration._declared().items()}
    assert bare == {name: dataclasses.replace(declared, used=None, help="") for name, declared in SETTINGS.items()}


def test_the_resamplings_are_those_of_the_reductions():
    assert tuple(SETTINGS["resample"].choices) == downsampling.RESAMPLES
    assert declaration.NEAREST == downsampling.NEAREST
