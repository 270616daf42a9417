"""Prompts, words, variants and the list of jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from todo_core import SETTINGS, Settings, SettingsError
from todo_lab.evaluation import variants
from todo_lab.evaluation.metrics import prompt_statistics
from todo_lab.evaluation.prompts import prompt_sets
from todo_lab.evaluation.prompts.make_prompts import pocket_prompts
from todo_lab.evaluation.running import jobs
from todo_lab.pocket.model.vocabulary import vocabulary
from todo_lab.sampling.request import Request


@pytest.mark.parametrize("name", prompt_sets.SETS)
def test_a_shipped_set_has_60_prompts_of_growing_length_and_nouns(name):
    found = prompt_sets.load_prompts(name)
    assert len(found) == len(set(found)) == 60
    lengths, nouns = (
        [prompt_statistics.word_count(text) for text in found],
        [prompt_statistics.noun_count(text) for text in found],
    )
    for figures in (lengths, nouns):
        thirds = [sum(figures[i : i + 20]) / 20 for i in (0, 20, 40)]
        assert thirds[0] < thirds[1] < thirds[2]
    assert min(lengths) <= 5
    assert max(lengths) >= 18


def test_the_pocket_model_can_read_its_prompts():
    assert vocabulary().encode(prompt_sets.load_prompts("pocket")).shape == (60, 77)


@pytest.mark.slow
def test_the_pocket_prompts_are_those_that_the_script_makes():
    assert pocket_prompts() == prompt_sets.load_prompts("pocket")


def test_a_file_of_prompts_is_read_without_comments_and_repetitions(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("# mine\n\n a cat \na dog\na cat\n", "utf-8")
    assert prompt_sets.load_prompts(str(path)) == ["a cat", "a dog"]


@pytest.mark.parametrize("content", [None, "", "# nothing\n"])
def test_a_file_without_prompts_is_rejected(tmp_path, content):
    path = tmp_path / "none.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=r"none\.txt"):
        prompt_sets.load_prompts(str(path))


def test_a_limit_takes_prompts_evenly():
    assert prompt_sets.evenly_spaced(list("abcdefghi"), 3) == ["a", "e", "i"]
    assert prompt_sets.evenly_spaced(list("abc"), 1) == ["a"]
    assert prompt_sets.evenly_spaced(list("abc"), None) == prompt_sets.evenly_spaced(list("abc"), 9) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "count", "nouns"),
    [
        ("a cat", 2, 1),
        ("a red circle on the left over a cloudy sky", 10, 2),
        ("a fox sleeping under a maple tree", 7, 3),
        ("a half-peeled lemon, oysters and grapes", 6, 3),
    ],
)
def test_words_and_nouns_are_counted(text, count, nouns):
    assert prompt_statistics.word_count(text) == count
    assert prompt_statistics.noun_count(text) == nouns


@pytest.mark.parametrize(
    ("settings", "name", "family", "amount", "scale"),
    [
        (Settings(factor_1=2), "ToDo 2", "ToDo", 2, "factor"),
        (
            Settings(factor_1=3, factor_2=2, phase="fixed"),
            "ToDo 3 and 2, fixed",
            "ToDo level 2 at 2, fixed",
            3,
            "factor",
        ),
        (Settings(resample="area"), "ToDo auto, area", "ToDo, area", None, "factor"),
        (Settings(method="similarity", target="all", ratio_1=0.25), "ToMe 0.25", "ToMe", 0.25, "ratio"),
        (Settings(method="similarity"), "ToMe 0.5, keys/values", "ToMe, keys/values", 0.5, "ratio"),
        (
            Settings(method="similarity", target="all", random=False),
            "ToMe 0.5, no random",
            "ToMe, no random",
            0.5,
            "ratio",
        ),
        (Settings(factor_1=2, factor_2=1, phase="fixed"), "ToDo 2, fixed", "ToDo, fixed", 2, "factor"),
        (Settings(factor_1=1, factor_2=1, interval=2), "interval 2", "interval 2", 1, "factor"),
        (Settings(interval=2), "ToDo auto, interval 2", "ToDo, interval 2", None, "factor"),
        (Settings(predict="whole"), "ToDo auto, whole steps", "ToDo, whole steps", None, "factor"),
        (Settings(predict="whole", factor_1=1, factor_2=1), "whole steps", "whole steps", 1, "factor"),
        (Settings(method="cluster", ratio_1=0.5, end=0.7), "cluster 0.5, end 0.7", "cluster, end 0.7", 0.5, "ratio"),
    ],
)
def test_the_name_of_a_variant_lists_its_changed_settings(settings, name, family, amount, scale):
    variant = variants.from_settings(settings)
    assert (variant.name, variant.family, variant.amount, variant.scale) == (name, family, amount, scale)


def test_the_name_of_a_peer_lists_its_options():
    peer = variants.from_peer("tomesd", {"ratio": 0.5})
    assert (peer.name, peer.family, peer.amount, peer.scale) == ("tomesd 0.5", "tomesd", 0.5, "ratio")
    assert variants.from_peer("hypertile", {"tile": 256}).amount is None
    blend = variants.from_peer("BiGain", {"factor": 2, "method": "linear_blend"})
    assert (blend.name, blend.family, blend.amount) == ("BiGain 2, blended", "BiGain, blended", 2)
    assert not peer.is_baseline


def test_lists_in_a_grid_make_all_combinations(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(
        "presets: [ToDo fast]\n"
        "settings:\n"
        "  - {method: downsample, factor_1: [2, auto], phase: [rotate, fixed]}\n"
        "  - {name: mine, method: cluster}\n"
        "peers:\n"
        "  - {peer: tomesd, ratio: [0.25, 0.5]}\n"
    )
    found = {variant.name: variant for variant in variants.from_grid(path)}
    assert list(found) == [
        "ToDo fast", "ToDo 2", "ToDo 2, fixed", "ToDo auto", "ToDo auto, fixed", "mine", "tomesd 0.25", "tomesd 0.5"
    ]  # fmt: skip
    assert found["ToDo 2, fixed"].settings == Settings(factor_1=2, phase="fixed")


@pytest.mark.parametrize(
    "text",
    [
        "other: 1",
        "- a",
        "settings: {method: none}",
        "settings: [{method: no}]",
        "presets: [no]",
        "peers: [{ratio: 1}]",
        "a: [",
    ],
)
def test_an_invalid_grid_is_rejected(tmp_path, text):
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError):
        variants.from_grid(path)


def test_the_baseline_comes_first_and_names_are_unique():
    same = variants.from_settings(Settings(factor_1=2))
    assert [v.name for v in variants.unique_variants([same, same])] == ["baseline", "ToDo 2"]
    with pytest.raises(SettingsError, match="ToDo 2"):
        variants.unique_variants([same, variants.from_settings(Settings(factor_1=3), "ToDo 2")])


def test_every_combination_is_a_job_with_a_key_of_its_own(chosen):
    found = jobs.make_jobs(
        jobs.make_scenes(["a", "b"], seeds=[1, 2], sizes=[(64, 64), (64, 96)], scales=[2, 3], base=Request(prompt="")),
        chosen,
    )
    assert len(found) == 2 * 2 * 2 * 2 * len(chosen)
    assert len({job.key for job in found}) == len({job.image for job in found}) == len(found)
    again = jobs.make_jobs(
        jobs.make_scenes(["a", "b"], seeds=[1, 2], sizes=[(64, 64), (64, 96)], scales=[2, 3], base=Request(prompt="")),
        chosen,
    )
    assert [job.key for job in found] == [job.key for job in again]


def test_the_key_of_a_job_holds_the_settings_that_have_an_effect():
    def key(settings: Settings) -> str:
        return jobs.Job(jobs.Scene(0, Request(prompt="a")), variants.Variant("mine", settings)).key

    assert key(Settings(factor_1=2)) == key(Settings(factor_1=2, sx=4, ratio_1=0.75))  # settings of ToMe
    assert key(Settings(factor_1=2)) != key(Settings(factor_1=2, end=0.5))


def test_a_row_of_an_older_default_is_not_taken_for_one_of_todays(monkeypatch):
    """The default of factor_2 was 1 and became auto; both make the name "ToDo 2"."""
    today = Settings(factor_1=2)
    scene = jobs.Scene(0, Request(prompt="a"))
    key = jobs.Job(scene, variants.Variant("ToDo 2", today)).key
    monkeypatch.setitem(SETTINGS, "factor_2", replace(SETTINGS["factor_2"], default=1.0))
    older = Settings(factor_1=2)
    assert older.factor_2 != today.factor_2
    assert jobs.Job(scene, variants.Variant("ToDo 2", older)).key != key
