"""Presets: the built-in ones, and the user's file through save, delete, damage and restart."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from todo_core import Settings, SettingsError
from todo_core.settings.declaration import BUILT_IN, CUSTOM, DEFAULT
from todo_core.webui.presets import Presets

OWN = Settings(factor_1=3, end=0.6)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "presets.json"


def test_the_built_in_presets_are_the_default_and_the_papers_values():
    assert BUILT_IN[DEFAULT] == Settings()
    assert len(set(BUILT_IN.values())) == len(BUILT_IN)
    everywhere = {"interval": 1, "start": 0, "end": 1}
    todo = {"factor_1": 2, "factor_2": 1, "target": "keys/values", "resample": "nearest", "phase": "fixed"}
    tome = {"method": "similarity", "target": "all", "ratio_1": 0.5, "sx": 2, "sy": 2}
    assert BUILT_IN["ToDo paper"] == Settings(method="downsample", **everywhere, **todo)
    assert BUILT_IN["ToMe paper"] == Settings(**everywhere, **tome)


def test_what_is_saved_replaced_or_deleted_is_so_after_a_restart(path):
    presets = Presets(path)
    presets.save(" mine ", Settings(factor_1=5))
    presets.save("other", Settings(factor_1=4))
    presets.save("mine", OWN)
    presets.delete("other")
    again = Presets(path)
    assert again.names == presets.names == [*BUILT_IN, "mine"]
    assert again.get("mine") == OWN
    assert again.name_of(OWN) == "mine"
    assert again.name_of(Settings(factor_1=7)) == CUSTOM
    assert again.trouble == ""


@pytest.mark.parametrize(("owner", "name"), [(Path, "write_text"), (os, "replace")])
def test_a_save_that_stops_halfway_leaves_the_old_file_whole(path, monkeypatch, owner, name):
    def half(file, text, *more):
        if name == "write_text":
            file.write_bytes(text[: len(text) // 2].encode())
        raise OSError("disk full")

    presets = Presets(path)
    presets.save("old", OWN)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, half)
        with pytest.raises(OSError, match="disk full"):
            presets.save("new", Settings(factor_1=7))
    again = Presets(path)
    assert again.names == presets.names == [*BUILT_IN, "old"]
    assert again.trouble == ""


@pytest.mark.parametrize("name", ["", "  ", CUSTOM, DEFAULT, "two\nlines", "x" * 61, "a; b"])
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(path, name):
    with pytest.raises(SettingsError, match="name"):
        Presets(path).save(name, OWN)
    assert not path.exists()


@pytest.mark.parametrize("name", ["no such", DEFAULT.lower(), f" {DEFAULT}"])
def test_names_are_exact_and_an_unknown_one_is_told_those_there_are(path, name):
    with pytest.raises(SettingsError, match="preset.*ToMe paper"):
        Presets(path).get(name)


@pytest.mark.parametrize(("content", "owner", "name"), [(None, Path, "read_bytes"), ("{", os, "replace")])
def test_a_file_that_cannot_be_opened_or_set_aside_stays_and_is_said(path, monkeypatch, content, owner, name):
    Presets(path).save("mine", OWN)
    content = path.write_text(content, "utf-8") and content if content else path.read_text("utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, Mock(side_effect=PermissionError("locked by another program")))
        presets = Presets(path)
    assert presets.names == list(BUILT_IN)
    assert "locked by another program" in presets.trouble
    with pytest.raises(OSError, match="could not be opened"):
        presets.save("new", OWN)
    assert [each.name for each in path.parent.iterdir()] == ["presets.json"]
    assert path.read_text("utf-8") == content


@pytest.mark.parametrize(
    "broken", ["{", "[]", '{"a": {"factor_1": -1}}', '{"a": {"unknown": 1}}', '{"a": 3}', "\x00\xff"]
)
def test_a_broken_file_is_set_aside_whole_and_said(path, broken):
    for aside in ("presets.broken.json", "presets.broken-2.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(broken, "utf-8")
        presets = Presets(path)
        assert presets.names == list(BUILT_IN)
        assert aside in presets.trouble
        assert (path.parent / aside).read_text("utf-8") == broken
        presets.save("new", OWN)
        assert json.loads(path.read_text("utf-8")).keys() == {"new"}


def test_a_stored_preset_gives_way_to_a_built_in_one_of_a_later_version(path):
    path.parent.mkdir()
    path.write_text(json.dumps({"Fast": {"factor_1": 3}}), "utf-8")
    presets = Presets(path)
    assert presets.names == [*BUILT_IN, "Fast (own)"]
    assert presets.get("Fast (own)") == Settings(factor_1=3)
    assert not presets.trouble
