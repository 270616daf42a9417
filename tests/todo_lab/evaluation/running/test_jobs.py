"""Prompts, words, variants and the list of jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from todo_core import SETTINGS, Settings, SettingsError
from todo_lab.evaluation import variants
from todo_lab.evaluation.prompts.prompt_sets import SETS, evenly_spaced, load_prompts, noun_count, word_count
from todo_lab.evaluation.running.jobs import Job, Scene, make_jobs, make_scenes
from todo_lab.pocket.model.vocabulary import vocabulary
from todo_lab.sampling.request import Request

TOME = {"method": "similarity", "target": "all"}
CLUSTER = {"method": "cluster", "ratio_1": 0.5}
NAMES = [  # name, family, amount, scale, settings
    ("ToDo 2", "ToDo", 2, "factor", {"factor_1": 2}),
    ("ToDo 3 and 2, fixed", "ToDo level 2 at 2, fixed", 3, "factor", {"factor_1": 3, "factor_2": 2, "phase": "fixed"}),
    ("ToDo auto, area", "ToDo, area", None, "factor", {"resample": "area"}),
    ("ToMe 0.25", "ToMe", 0.25, "ratio", {**TOME, "ratio_1": 0.25}),
    ("ToMe 0.5, keys/values", "ToMe, keys/values", 0.5, "ratio", {"method": "similarity"}),
    ("ToMe 0.5, sx 4, no random", "ToMe, sx 4, no random", 0.5, "ratio", {**TOME, "random": False, "sx": 4}),
    ("ToDo 2, fixed", "ToDo, fixed", 2, "factor", {"factor_1": 2, "factor_2": 1, "phase": "fixed"}),
    ("interval 2", "interval 2", 1, "factor", {"factor_1": 1, "factor_2": 1, "interval": 2}),
    ("ToDo auto, interval 2", "ToDo, interval 2", None, "factor", {"interval": 2}),
    ("ToDo auto, whole steps", "ToDo, whole steps", None, "factor", {"predict": "whole"}),
    ("whole steps", "whole steps", 1, "factor", {"predict": "whole", "factor_1": 1, "factor_2": 1}),
    ("cluster 0.5, end 0.7", "cluster, end 0.7", 0.5, "ratio", {**CLUSTER, "end": 0.7}),
]
PEERS = [
    ("tomesd 0.5", "tomesd", 0.5, "ratio", {"ratio": 0.5}),
    ("HyperTile 256", "HyperTile 256", None, "", {"tile": 256}),
    ("BiGain 2, blended", "BiGain, blended", 2, "factor", {"factor": 2, "method": "linear_blend"}),
]


@pytest.mark.parametrize("name", SETS)
def test_a_shipped_set_has_60_prompts_of_growing_length_and_nouns(name):
    found = load_prompts(name)
    assert len(found) == len(set(found)) == 60
    for figures in ([word_count(text) for text in found], [noun_count(text) for text in found]):
        first, second, third = (sum(figures[i : i + 20]) for i in (0, 20, 40))
        assert first < second < third
    assert min(map(word_count, found)) <= 5
    assert max(map(word_count, found)) >= 18


def test_the_pocket_model_can_read_its_prompts():
    assert vocabulary().encode(load_prompts("pocket")).shape == (60, 77)


def test_a_file_of_prompts_is_read_without_comments_and_repetitions(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("# mine\n\n a cat \na dog\na cat\n", "utf-8")
    assert load_prompts(str(path)) == ["a cat", "a dog"]
    path.write_text("# nothing\n")
    for none in (path, tmp_path / "no mine.txt"):
        with pytest.raises(SettingsError, match=r"mine\.txt"):
            load_prompts(str(none))


def test_a_limit_takes_prompts_evenly():
    assert evenly_spaced(list("abcdefghi"), 3) == ["a", "e", "i"]
    assert evenly_spaced(list("abc"), 1) == ["a"]
    assert evenly_spaced(list("abc"), None) == evenly_spaced(list("abc"), 9) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "words", "nouns"),
    [
        ("a cat", 2, 1), ("a red circle on the left over a cloudy sky", 10, 2),
        ("a fox sleeping under a maple tree", 7, 3), ("a half-peeled lemon, oysters and grapes", 6, 3),
    ],
)  # fmt: skip
def test_words_and_nouns_are_counted(text, words, nouns):
    assert (word_count(text), noun_count(text)) == (words, nouns)


@pytest.mark.parametrize(("name", "family", "amount", "scale", "given"), [*NAMES, *PEERS])
def test_a_name_lists_what_is_not_as_usual(name, family, amount, scale, given):
    peers = {"ratio": "tomesd", "factor": "BiGain", "tile": "hypertile"}
    peer = next((peers[key] for key in given if key in peers), "")
    variant = variants.from_peer(peer, given) if peer else variants.from_settings(Settings(**given))
    assert (variant.name, variant.family, variant.amount, variant.scale) == (name, family, amount, scale)
    assert not variant.is_baseline


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
        "other: 1", "- a", "settings: {method: none}", "settings: [{method: no}]", "presets: [no]",
        "peers: [{ratio: 1}]", "a: [",
    ],
)  # fmt: skip
def test_an_invalid_grid_is_rejected(tmp_path, text):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(SettingsError):
        variants.from_grid(tmp_path / "grid.yaml")


def test_the_baseline_comes_first_and_names_are_unique():
    same = variants.from_settings(Settings(factor_1=2))
    assert [v.name for v in variants.unique_variants([same, same])] == ["baseline", "ToDo 2"]
    with pytest.raises(SettingsError, match="ToDo 2"):
        variants.unique_variants([same, variants.from_settings(Settings(factor_1=3), "ToDo 2")])


def test_every_combination_is_a_job_with_a_key_of_its_own(chosen):
    def made() -> list[Job]:
        sizes = [(64, 64), (64, 96)]
        return make_jobs(
            make_scenes(["a", "b"], seeds=[1, 2], sizes=sizes, scales=[2, 3], base=Request(prompt="")), chosen
        )

    assert len(made()) == 2 * 2 * 2 * 2 * len(chosen)
    assert len({job.key for job in made()}) == len({job.image for job in made()}) == len(made())
    assert [job.key for job in made()] == [job.key for job in made()]
    assert {job.scene.request.height for job in made()} == {64, 96}


def test_the_key_of_a_job_holds_the_settings_that_have_an_effect(monkeypatch):
    """A row of an older default is not taken for one of today's: that of factor_2 was 1 and became auto."""

    def key(**changes) -> str:
        return Job(Scene(0, Request(prompt="a")), variants.Variant("mine", Settings(factor_1=2, **changes))).key

    assert (today := key()) == key(sx=4, ratio_1=0.75)  # settings of ToMe
    assert today != key(end=0.5)
    monkeypatch.setitem(SETTINGS, "factor_2", replace(SETTINGS["factor_2"], default=1.0))
    assert today != key()
