"""Settings and presets as keywords of apply_patch and patched: what is refused, and what editors and mypy know."""

import inspect
import pydoc
import re
from pathlib import Path

import pytest
from mypy import api

from tests.models import hook_count
from todo_core import SETTINGS, Settings, SettingsError, apply_patch, patched
from todo_core.settings import BUILT_IN

ROOT = Path(__file__).parents[3]
CHECKED = ["__init__.pyi", "errors.py", "settings"]
MARKED = """
from todo_core import Settings, apply_patch, patched
from dataclasses import replace
Settings(factor_1=3, factor_2="auto", end=0.7, seed=None, resample="max")
Settings(factr_1=3)  # wrong
Settings(factor_1="two")  # wrong
Settings(method="tome")  # wrong
Settings(random=None)  # wrong
Settings(seed="7")  # wrong
Settings("downsample")  # wrong
replace(Settings(), factor_1="two")  # wrong
Settings.preset("Fast")
Settings.preset(3)  # wrong
Settings().factor_1 = 3  # wrong
apply_patch(None, preset="Fast", end=0.8)
apply_patch(None, Settings(), factor_1=3)
apply_patch(None, "Fast")  # wrong
apply_patch(None, preset=3)  # wrong
apply_patch(None, preset="ToDo fats")  # wrong
apply_patch(None, factr_1=3)  # wrong
apply_patch(None, factor_1="two")  # wrong
with patched(None, preset="Fast", method="cluster") as session:
    print(session.plan)
patched(None, ratio_1="half")  # wrong
patched(None, factr_1=3)  # wrong
"""


def patched_settings(*args, **values):
    with patched(*args, **values) as session:
        return session.settings


USES = pytest.mark.parametrize("put", [lambda *a, **v: apply_patch(*a, **v).settings, patched_settings])


@USES
def test_a_preset_by_name_with_changes(ldm_sd1, put):
    assert put(ldm_sd1.unet, preset="Fast", end=0.8) == Settings(tolerance=BUILT_IN["Fast"].tolerance, end=0.8)
    assert put(ldm_sd1.unet, preset="ToMe paper") == Settings.preset("ToMe paper") == BUILT_IN["ToMe paper"]
    assert put(ldm_sd1.unet, Settings(factor_1=3), end=0.8) == Settings(factor_1=3, end=0.8)
    assert put(ldm_sd1.unet) == Settings()


@USES
@pytest.mark.parametrize(
    ("args", "values", "field", "said"),
    [
        ([], {"preset": "todo onl"}, "preset", r"\(did you mean ToDo only\?\)"),
        ([], {"preset": ["Fast"]}, "preset", "'Balanced', 'Closest'"),
        ([], {"prest": "Fast"}, "prest", r"\(did you mean preset\?\)"),
        ([], {"factr_1": 3}, "factr_1", r"\(did you mean factor_1\?\)"),
        ([], {"preset": "Fast", "factor_1": "two"}, "factor_1", "'auto' or a whole number from 1 to 8"),
        ([Settings()], {"preset": "Fast"}, "preset", "either settings or a preset, not both"),
        (["Fast"], {}, "settings", "a Settings object, or preset='Fast'"),
        ([3], {}, "settings", "a Settings object, or settings by name"),
    ],
)
def test_wrong_names_and_types_are_refused_before_anything_is_changed(ldm_sd1, put, args, values, field, said):
    with pytest.raises(SettingsError, match=said) as caught:
        put(ldm_sd1.unet, *args, **values)
    assert caught.value.field == field
    assert hook_count(ldm_sd1.unet) == 0


@pytest.mark.parametrize("of", [Settings, apply_patch, patched])
def test_help_shows_every_setting_with_type_default_and_meaning(of):
    parameters = inspect.signature(of).parameters
    assert list(parameters)[-len(SETTINGS) :] == list(SETTINGS)
    assert {name: parameters[name].default for name in SETTINGS} == Settings().to_dict()
    assert {name: parameters[name].annotation for name in SETTINGS} == {s.name: s.type for s in SETTINGS.values()}
    assert {parameters[name].kind for name in SETTINGS} == {inspect.Parameter.KEYWORD_ONLY}
    shown = " ".join(pydoc.plain(pydoc.render_doc(of)).split())
    assert "phase: Literal['rotate', 'fixed'] = 'rotate'" in shown
    for name, setting in SETTINGS.items() if of is not Settings else ():
        assert f"{name} (default {setting.default!r}): {setting.label}. {setting.help}" in shown


@pytest.mark.long
def test_a_strict_type_checker_rejects_wrong_names_and_types_and_nothing_else(tmp_path, monkeypatch):
    example = tmp_path / "example.py"
    example.write_text(MARKED, "utf-8")
    monkeypatch.chdir(ROOT)
    options = [
        "--strict",
        "--config-file=",
        "--explicit-package-bases",  # the root is a package too
        "--follow-imports=skip",
        "--python-version=3.10",
        f"--cache-dir={tmp_path}",
    ]
    out, trouble, _ = api.run([*options, *(f"todo_core/{name}" for name in CHECKED), str(example)])
    assert not trouble
    found = {int(number) for number in re.findall(r"example\.py:(\d+): error", out)}
    assert found == {n for n, line in enumerate(MARKED.splitlines(), 1) if line.endswith("# wrong")}, out
