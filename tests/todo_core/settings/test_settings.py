"""The declared settings: defaults, what is refused, and that no way of writing them down loses anything."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.errors import SettingsError
from todo_core.settings import SETTINGS, Settings, declaration

DEFAULTS = {
    "method": "downsample",
    "target": "keys/values",
    "factor_1": "auto",
    "factor_2": "auto",
    "ratio_1": 0.5,
    "ratio_2": 0.0,
    "resample": "nearest-exact",
    "phase": "rotate",
    "start": 0.0,
    "end": 1.0,
    "window": "steps",
    "afterwards": "none",
    "passes": "hires",
    "sx": 2,
    "sy": 2,
    "random": True,
    "seed": None,
    "attn": True,
    "crossattn": False,
    "mlp": False,
    "interval": "auto",
    "predict": "deep",
    "tolerance": 0.08,
}
OLDER = {"interval": 1}  # where an image without the key had another value than the default
CHOICES = {
    "method": ["downsample", "similarity", "cluster", "none"],
    "target": ["keys/values", "all"],
    "resample": ["nearest", "nearest-exact", "bilinear", "bicubic", "area", "max"],
    "phase": ["rotate", "fixed"],
    "window": ["steps", "noise"],
    "afterwards": ["none", "downsample", "similarity", "cluster"],
    "passes": ["hires", "first", "all"],
    "predict": ["deep", "whole"],
}
FLAGS = ["random", "attn", "crossattn", "mlp"]
NUMBERS = ["factor_1", "factor_2", "ratio_1", "ratio_2", "start", "end", "tolerance"]

# AUTOMATIC1111: modules/infotext_utils.py
HOST_PAIR = re.compile(r'\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)')
HOST_SIZE = re.compile(r"^(\d+)x(\d+)$")


@st.composite
def valid_settings(draw):
    """Any settings that should be accepted, each field given or left out."""
    factors = st.just("auto") | st.integers(1, 8)
    ratios, sides = st.floats(0, 0.99), st.integers(1, 16)
    fields = {name: st.sampled_from(choices) for name, choices in CHOICES.items()}
    fields |= dict.fromkeys(FLAGS, st.booleans())
    fields |= {"factor_1": factors, "factor_2": factors, "ratio_1": ratios, "ratio_2": ratios, "sx": sides, "sy": sides}
    fields |= {"seed": st.none() | st.integers(0, 2**64), "interval": factors}
    values = draw(st.fixed_dictionaries({}, optional=fields))
    if draw(st.booleans()):
        values["start"], values["end"] = sorted(draw(st.lists(st.floats(0, 1), min_size=2, max_size=2, unique=True)))
    filled = DEFAULTS | values
    if filled["method"] != "none" and "similarity" in (filled["method"], filled["afterwards"]):
        cap = 1 - 1 / (filled["sx"] * filled["sy"])
        values |= {name: min(filled[name], cap) for name in ("ratio_1", "ratio_2")}
    return Settings(**values)


def refused(**values):
    with pytest.raises(SettingsError) as caught:
        Settings(**values)
    return caught.value


def test_defaults_are_those_of_the_design():
    assert Settings().to_dict() == DEFAULTS
    assert list(SETTINGS) == list(DEFAULTS)


def test_defaults_have_the_declared_types():
    settings = Settings()
    for name, value in DEFAULTS.items():
        assert type(getattr(settings, name)) is type(value), name


def test_numbers_are_kept_in_their_fields_own_type():
    settings = Settings(factor_1=2.0, ratio_1=0, sx=3.0, seed=7.0)
    kept = [settings.factor_1, settings.ratio_1, settings.sx, settings.seed]
    assert [(value, type(value)) for value in kept] == [(2, int), (0, float), (3, int), (7, int)]


def test_a_whole_number_and_its_float_make_equal_settings():
    assert Settings(factor_1=2) == Settings(factor_1=2.0)
    assert hash(Settings(factor_1=2)) == hash(Settings(factor_1=2.0))


def test_every_choice_is_accepted():
    for name, choices in CHOICES.items():
        assert [getattr(Settings(**{name: choice}), name) for choice in choices] == choices


@pytest.mark.parametrize("name", ["factor_3", "Method", "factor2", "", "self", "args"])
def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(name):
    error = refused(**{name: 1})
    assert (error.field, error.value) == (name, 1)
    assert all(known in error.allowed for known in DEFAULTS)
    assert error.allowed in str(error)


@pytest.mark.parametrize(("name", "nearest"), [("factor", "factor_1"), ("ratio2", "ratio_2"), ("metod", "method")])
def test_the_nearest_name_is_proposed_and_of_equals_the_first(name, nearest):
    assert f"{name!r} is not a setting (did you mean {nearest}?); " in str(refused(**{name: 1}))


def test_values_by_position_are_refused():
    with pytest.raises(TypeError):
        Settings("downsample")


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("value", ["tome", "", "Downsample ", None, 0, True, ["all"]])
def test_another_choice_is_refused(name, value):
    error = refused(**{name: value})
    assert (error.field, error.value) == (name, value)
    assert all(repr(choice) in error.allowed for choice in CHOICES[name])


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [0, 1, 1.0, "True", "", None])
def test_a_flag_takes_nothing_but_a_bool(name, value):
    error = refused(**{name: value})
    assert (error.field, error.value, error.allowed) == (name, value, "True or False")


@pytest.mark.parametrize("name", [*NUMBERS, "sx", "sy"])
@pytest.mark.parametrize(
    "value",
    [True, False, "0.5", "", None, math.inf, -math.inf, math.nan, 1j, [0.5], pytest.param(10**400, id="1e400")],
)
def test_a_number_takes_nothing_but_a_finite_number(name, value):
    error = refused(**{name: value})
    assert error.field == name
    assert error.value is value
    assert "number" in error.allowed


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("factor_1", 0.99, "'auto' or a whole number from 1 to 8"),
        ("factor_1", 1.5, "'auto' or a whole number from 1 to 8"),
        ("factor_1", 9, "'auto' or a whole number from 1 to 8"),
        ("factor_2", -2, "'auto' or a whole number from 1 to 8"),
        ("factor_1", 0, "'auto' or a whole number from 1 to 8"),
        ("factor_1", "Auto", "'auto' or a whole number from 1 to 8"),
        ("ratio_1", -0.01, "a number from 0 to 0.99"),
        ("ratio_2", 1, "a number from 0 to 0.99"),
        ("ratio_1", "auto", "a number from 0 to 0.99"),
        ("start", -0.1, "a number from 0 to 1"),
        ("end", 1.01, "a number from 0 to 1"),
        ("sx", 0, "a whole number from 1 to 16"),
        ("sy", 17, "a whole number from 1 to 16"),
        ("sx", 2.5, "a whole number from 1 to 16"),
        ("sy", "2", "a whole number from 1 to 16"),
        ("seed", -2, "None or -1 (each image's own seed) or a whole number >= 0"),
        ("seed", 1.5, "None or -1 (each image's own seed) or a whole number >= 0"),
        ("seed", True, "None or -1 (each image's own seed) or a whole number >= 0"),
        ("seed", "7", "None or -1 (each image's own seed) or a whole number >= 0"),
        ("seed", math.nan, "None or -1 (each image's own seed) or a whole number >= 0"),
        ("seed", math.inf, "None or -1 (each image's own seed) or a whole number >= 0"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name_value_and_range(name, value, allowed):
    error = refused(**{name: value})
    assert (error.field, error.allowed) == (name, allowed)
    assert error.value is value
    assert str(error) == f"{name} = {value!r} is not possible; allowed: {allowed}"


def test_a_seed_beyond_every_float_is_refused_by_name():
    error = refused(seed=10**400)
    assert (error.field, error.value) == ("seed", 10**400)
    assert Settings(seed=10**300).seed == 10**300


def test_the_error_is_a_value_error_for_callers_that_know_no_other():
    assert issubclass(SettingsError, ValueError)


@pytest.mark.parametrize(("start", "end"), [(0.5, 0.5), (0.7, 0.3), (1, 1), (0, 0)])
def test_the_start_must_lie_before_the_end(start, end):
    error = refused(start=start, end=end)
    assert (error.field, error.value) == ("start", start)
    assert f"a value below the end, {end:g}" in str(error)


@pytest.mark.parametrize("name", ["ratio_1", "ratio_2"])
@pytest.mark.parametrize("method", [{"method": "similarity"}, {"afterwards": "similarity", "end": 0.7}])
@pytest.mark.parametrize(
    ("cell", "ratio", "cap"),
    [({}, 0.76, "0.75"), ({"sx": 3, "sy": 3}, 0.89, "0.88"), ({"sx": 1, "sy": 2}, 0.51, "0.5")],
)
def test_a_ratio_that_would_take_destinations_away_is_refused_with_the_cap(name, method, cell, ratio, cap):
    error = refused(**{name: ratio}, **method, **cell)
    assert (error.field, error.value) == (name, ratio)
    assert cap in error.allowed
    assert f"one token of each {cell.get('sx', 2)} x {cell.get('sy', 2)} cell stays" in error.allowed


@pytest.mark.parametrize("method", [{"method": "similarity"}, {"afterwards": "similarity"}])
def test_a_ratio_at_the_cap_is_accepted(method):
    assert Settings(ratio_1=0.75, **method).ratio_1 == 0.75


@pytest.mark.parametrize(
    "method",
    [
        {"method": "cluster"},
        {"method": "downsample"},
        {"method": "none"},
        {"method": "none", "afterwards": "similarity"},
    ],
)
def test_the_cap_holds_for_similarity_alone(method):
    assert Settings(ratio_1=0.99, ratio_2=0.9, **method).ratio_1 == 0.99


def test_settings_cannot_be_changed():
    settings = Settings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.sx = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del settings.sx


def test_replace_gives_other_settings_and_leaves_the_first():
    first = Settings(ratio_2=0.25)
    second = dataclasses.replace(first, sx=4)
    assert second == Settings(ratio_2=0.25, sx=4)
    assert first == Settings(ratio_2=0.25)


@pytest.mark.parametrize(
    ("change", "field"), [({"sx": 2.5}, "sx"), ({"end": 0.2}, "start"), ({"ratio_1": 0.8}, "ratio_1"), ({"x": 1}, "x")]
)
def test_replace_validates(change, field):
    with pytest.raises(SettingsError) as caught:
        dataclasses.replace(Settings(method="similarity", start=0.3), **change)
    assert caught.value.field == field


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_equal(copied):
    settings = Settings(method="similarity", seed=3, end=0.5)
    assert copied(settings) == settings


@given(valid_settings())
@examples(200)
def test_a_dict_of_them_survives_json(settings):
    assert Settings(**json.loads(json.dumps(settings.to_dict()))) == settings


@given(valid_settings())
@examples(200)
def test_their_text_is_read_back_as_the_same_value(settings):
    text = {name: declared.format(getattr(settings, name)) for name, declared in SETTINGS.items()}
    assert all(isinstance(value, str) for value in text.values())
    assert Settings.parse(text) == settings


@given(valid_settings())
@examples(300)
def test_infotext_keeps_all_that_is_used_and_nothing_else(settings):
    read = Settings.from_infotext(settings.to_infotext())
    for name, default in (DEFAULTS | OLDER).items():
        assert getattr(read, name) == (getattr(settings, name) if name in settings.used else default), name


@given(valid_settings())
@examples(200)
def test_infotext_has_the_method_and_what_differs_from_an_image_without_keys(settings):
    infotext = settings.to_infotext()
    assert infotext.pop("ToDo method") == settings.method
    by_key = {declared.infotext_key: name for name, declared in SETTINGS.items()}
    changed = {name for name in settings.used if getattr(settings, name) != (DEFAULTS | OLDER)[name]} - {"method"}
    assert {by_key[key] for key in infotext} == changed


@given(valid_settings())
@examples(200)
def test_infotext_survives_the_hosts_own_reading(settings):
    infotext = settings.to_infotext()
    line = ", ".join(f"{k}: {v}" for k, v in ({"Steps": "20", "Size": "8x8"} | infotext | {"Version": "v1.10"}).items())
    read = dict(HOST_PAIR.findall(line))
    assert {key: value for key, value in read.items() if key.startswith("ToDo")} == infotext
    # the WebUI takes "2x3" apart into two keys, and strips a value's quotes
    assert not any(HOST_SIZE.match(value) or '"' in value for value in infotext.values())
    assert Settings.from_infotext(read) == Settings.from_infotext(infotext)


def test_infotext_of_the_defaults_is_the_method_and_the_interval_that_older_images_lack():
    assert Settings().to_infotext() == {"ToDo method": "downsample", "ToDo interval": "auto"}
    assert Settings(interval=1).to_infotext() == {"ToDo method": "downsample"}


def test_infotext_can_leave_settings_out():
    settings = Settings(factor_1=2, end=0.5)
    kept = settings.to_infotext(without=frozenset({"end", "interval"}))
    assert kept == {"ToDo method": "downsample", "ToDo factor 1": "2"}


def test_infotext_of_an_image_that_was_not_reduced_is_none():
    assert Settings.from_infotext({}) is None
    assert Settings.from_infotext({"Steps": "20", "Token merging ratio": "0.5"}) is None


def test_infotext_of_another_extension_is_not_taken_for_ours():
    theirs = {"ToDo factor": "2", "ToDo factor2": "1", "ToDo disable after": "0.5"}
    assert Settings.from_infotext(theirs) is None
    assert Settings.from_infotext(theirs | {"ToDo method": "cluster"}) == Settings(method="cluster", interval=1)


def test_the_method_of_version_0_1_has_another_key():
    old = {"ToDo": "cluster", "ToDo version": "0.1.0"}
    assert Settings.from_infotext(old) == Settings(method="cluster", interval=1)
    assert Settings.from_infotext({"ToDo": "0.5"}) is None, "the ratio of SD.Next's own ToDo"


def test_infotext_with_an_impossible_value_names_it():
    with pytest.raises(SettingsError) as caught:
        Settings.from_infotext({"ToDo method": "downsample", "ToDo factor 1": "half"})
    assert (caught.value.field, caught.value.value) == ("factor_1", "half")


def test_auto_with_the_factor_it_used_is_auto_and_a_number_once_its_rule_has_changed():
    infotext = {"ToDo method": "downsample", "ToDo factor 1": "auto (2)", "ToDo interval": "auto (3)"}
    assert Settings.from_infotext(infotext) == Settings(interval="auto")
    assert Settings.from_infotext(infotext | {"ToDo version": "0.3.0"}) == Settings(interval="auto")
    assert Settings.from_infotext(infotext | {"ToDo version": "1.10.0.dev1"}) == Settings(interval="auto")
    assert Settings.from_infotext(infotext | {"ToDo version": "0.2.0"}) == Settings(factor_1=2, interval=3)
    assert Settings.from_infotext({"ToDo version": "0.3.0", "ToDo interval": "auto (2)"}) == Settings()


@pytest.mark.parametrize("predict", ["auto (whole)", "whole"])
def test_auto_factors_of_version_0_2_kept_all_tokens_where_whole_steps_were_predicted(predict):
    old = {"ToDo method": "downsample", "ToDo interval": "auto (3)", "ToDo predict": predict, "ToDo version": "0.2.0"}
    assert Settings.from_infotext(old) == Settings(predict="whole", interval=3, factor_1=1, factor_2=1)
    factors = old | {"ToDo factor 1": "4"}
    assert Settings.from_infotext(factors) == Settings(predict="whole", interval=3, factor_1=4, factor_2=1)
    now = {"ToDo method": "downsample", "ToDo interval": "auto (2)", "ToDo predict": "whole", "ToDo version": "0.3.0"}
    assert Settings.from_infotext(now) == Settings(predict="whole")


@pytest.mark.parametrize(("old", "now"), [("auto", "deep"), ("auto (deep)", "deep"), ("whole", "whole")])
def test_an_older_choice_by_the_sampler_is_read_as_deep(old, now):
    assert Settings.parse_older({"predict": old}).predict == now
    with pytest.raises(SettingsError, match="'deep', 'whole'"):
        Settings.parse({"predict": "auto"})


def test_a_setting_that_has_left_is_read_without_it():
    assert Settings.parse({"reach": "1", "sx": "3"}) == Settings(sx=3)
    assert Settings.from_infotext({"ToDo method": "similarity", "ToDo reach": "2"}) == Settings(
        method="similarity", interval=1
    )
    assert refused(reach=1).field == "reach"


def test_a_seed_of_minus_1_is_each_images_own():
    assert Settings(seed=-1).seed is Settings.parse({"seed": "-1"}).seed is None
    with pytest.raises(SettingsError):
        Settings(seed=-2)


@pytest.mark.parametrize(("old", "now"), [("1.5", 2), ("1.25", 1), ("2.5", 3), ("2", 2), ("12.5", 8), ("auto", "auto")])
def test_a_fraction_of_an_older_version_is_rounded_in_what_was_stored(old, now):
    assert Settings.from_infotext({"ToDo method": "downsample", "ToDo factor 1": old}).factor_1 == now
    assert Settings.parse_older({"factor_1": old}).factor_1 == now
    with pytest.raises(SettingsError, match="0.5"):
        Settings.parse_older({"factor_1": 0.5})


def test_infotext_keys_are_ours_distinct_and_nobody_elses():
    keys = [declared.infotext_key for declared in SETTINGS.values()]
    assert len(set(keys)) == len(DEFAULTS)
    assert all(key.startswith("ToDo ") for key in keys)
    assert not set(keys) & {"ToDo factor", "ToDo factor2", "ToDo disable after"}


def test_infotext_keys_are_keys_to_the_host():
    for declared in SETTINGS.values():
        assert HOST_PAIR.findall(f"{declared.infotext_key}: 1, ") == [(declared.infotext_key, "1")]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("random", "True", True),
        ("random", "false", False),
        ("mlp", " TRUE ", True),
        ("factor_1", "3", 3),
        ("factor_1", "3.0", 3),
        ("factor_1", "auto", "auto"),
        ("factor_2", " auto ", "auto"),
        ("ratio_1", "1e-2", 0.01),
        ("end", ".5", 0.5),
        ("sx", "4", 4),
        ("sx", "4.0", 4),
        ("seed", "", None),
        ("seed", "none", None),
        ("seed", "None", None),
        ("seed", "12345678901234567890", 12345678901234567890),
        ("method", "none", "none"),
        ("target", "all", "all"),
        ("factor_1", 2.0, 2),
        ("random", False, False),
        ("seed", None, None),
    ],
)
def test_parse_reads_text_and_leaves_values(name, text, value):
    parsed = getattr(Settings.parse({name: text}), name)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("random", "yes"),
        ("random", ""),
        ("random", "1"),
        ("factor_1", ""),
        ("factor_1", "nan"),
        ("factor_1", "inf"),
        ("factor_1", "0.5"),
        pytest.param("factor_1", "9" * 400, id="1e400"),
        ("ratio_1", "half"),
        ("ratio_1", "--1"),
        ("ratio_1", "True"),
        ("ratio_1", "²"),
        ("sx", "2.5"),
        ("sx", ""),
        pytest.param("sx", "9" * 5000, id="1e5000"),
        ("seed", "-2"),
        ("seed", "auto"),
        ("method", "ToMe"),
        ("method", ""),
    ],
)
def test_parse_refuses_text_that_means_nothing_here(name, text):
    with pytest.raises(SettingsError) as caught:
        Settings.parse({name: text})
    assert caught.value.field == name


@given(
    st.dictionaries(st.sampled_from(list(DEFAULTS)), st.text() | st.none() | st.booleans() | st.floats(), max_size=3)
)
@examples(300)
def test_parse_accepts_or_names_the_field_whatever_comes(values):
    fields = {*values, "start"}  # the start is named where start and end do not fit
    try:
        settings = Settings.parse(values)
    except SettingsError as error:
        refused_field = error.field
    else:
        assert Settings(**settings.to_dict()) == settings
        return
    assert refused_field in fields


def test_parse_refuses_an_unknown_name():
    with pytest.raises(SettingsError) as caught:
        Settings.parse({"factor": "2"})
    assert (caught.value.field, caught.value.value) == ("factor", "2")


ACTING = {"method", "start", "end", "passes", "interval", "predict", "tolerance"}
ALWAYS = ACTING | {"target"}
FACTORS, RATIOS = {"factor_1", "factor_2", "resample"}, {"ratio_1", "ratio_2"}
ENDS = {"window", "afterwards"}
CELL, MODULES = {"sx", "sy", "random"}, {"attn", "crossattn", "mlp"}


@pytest.mark.parametrize(
    ("values", "used"),
    [
        ({}, ALWAYS | FACTORS | {"phase"}),
        ({"interval": 2}, (ALWAYS - {"tolerance"}) | FACTORS | {"phase"}),
        ({"interval": 1}, (ALWAYS - {"predict", "tolerance"}) | FACTORS | {"phase"}),
        ({"method": "none"}, {"method"}),
        ({"method": "none", "afterwards": "similarity", "target": "all"}, {"method"}),
        ({"resample": "nearest"}, ALWAYS | FACTORS | {"phase"}),
        ({"resample": "area"}, ALWAYS | FACTORS),
        ({"target": "all"}, ALWAYS | FACTORS | {"phase"} | MODULES),
        ({"method": "similarity"}, ALWAYS | RATIOS | CELL | {"seed"}),
        ({"method": "similarity", "random": False}, ALWAYS | RATIOS | CELL),
        ({"method": "cluster"}, ALWAYS | RATIOS),
        ({"method": "cluster", "afterwards": "downsample"}, ALWAYS | RATIOS),
        ({"start": 0.1}, ALWAYS | FACTORS | {"phase", "window"}),
        ({"end": 0.7}, ALWAYS | FACTORS | {"phase"} | ENDS),
        ({"method": "cluster", "afterwards": "downsample", "end": 0.7}, ALWAYS | RATIOS | FACTORS | {"phase"} | ENDS),
        ({"afterwards": "similarity", "end": 0.7}, ALWAYS | FACTORS | {"phase"} | RATIOS | CELL | {"seed"} | ENDS),
        ({"factor_1": 1, "factor_2": 1, "target": "all"}, ACTING | {"factor_1", "factor_2"}),
        ({"method": "similarity", "ratio_1": 0.0}, ACTING | RATIOS),
        ({"method": "similarity", "ratio_1": 0.0, "ratio_2": 0.5}, ALWAYS | RATIOS | CELL | {"seed"}),
    ],
)
def test_used_are_the_settings_that_can_matter(values, used):
    assert set(Settings(**values).used) == used


def test_every_setting_has_a_label_of_its_own_and_a_help():
    assert len({declared.label for declared in SETTINGS.values()}) == len(DEFAULTS)
    assert all(declared.help.endswith(".") for declared in SETTINGS.values())


def test_where_a_program_ships_without_its_sources_only_the_help_is_missing(monkeypatch):
    def no_source(of):
        raise OSError("could not get source code")

    monkeypatch.setattr(declaration.inspect, "getsource", no_source)
    declared = declaration._declared()
    assert {name: (s.label, s.type, s.default, s.help) for name, s in declared.items()} == {
        name: (s.label, s.type, s.default, "") for name, s in SETTINGS.items()
    }
