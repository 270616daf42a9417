"""Prompts, variants and the list of jobs."""

from dataclasses import replace

import pytest

from todo_core import SETTINGS, Settings, SettingsError
from todo_lab.evaluation import variants
from todo_lab.evaluation.prompts.prompt_sets import SETS, evenly_spaced, load_prompts
from todo_lab.evaluation.running.jobs import Job, Scene, make_scenes
from todo_lab.sampling.request import Request

TOME = {"method": "similarity", "target": "all"}
NAMES = {
    "ToDo 2": {"factor_1": 2},
    "ToDo 3 and 2, fixed": {"factor_1": 3, "factor_2": 2, "phase": "fixed"},
    "ToDo auto, area": {"resample": "area"},
    "ToMe 0.25": {**TOME, "ratio_1": 0.25},
    "ToMe 0.5, keys/values": {"method": "similarity"},
    "ToMe 0.5, sx 4, no random": {**TOME, "random": False, "sx": 4},
    "ToDo 2, fixed": {"factor_1": 2, "factor_2": 1, "phase": "fixed"},
    "interval 2": {"factor_1": 1, "factor_2": 1, "interval": 2},
    "ToDo auto, interval 2": {"interval": 2},
    "ToDo auto, whole steps": {"predict": "whole"},
    "whole steps": {"predict": "whole", "factor_1": 1, "factor_2": 1},
    "cluster 0.5, end 0.7": {"method": "cluster", "ratio_1": 0.5, "end": 0.7},
}
PEERS = {
    "tomesd 0.5": ("tomesd", {"ratio": 0.5}),
    "HyperTile 256": ("hypertile", {"tile": 256}),
    "BiGain 2, blended": ("BiGain", {"factor": 2, "method": "linear_blend"}),
}


@pytest.mark.parametrize("name", SETS)
def test_a_shipped_set_has_60_prompts_of_growing_length(name):
    counts = [len(text.split()) for text in load_prompts(name)]
    assert len(counts) == len(set(load_prompts(name))) == 60
    assert sum(counts[:20]) < sum(counts[20:40]) < sum(counts[40:])
    assert min(counts) <= 5
    assert max(counts) >= 18


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


def test_a_name_lists_what_is_not_as_usual():
    found = [variants.from_settings(Settings(**given)) for given in NAMES.values()]
    found += [variants.from_peer(*given) for given in PEERS.values()]
    assert [variant.name for variant in found] == [*NAMES, *PEERS]
    assert not any(variant.is_baseline for variant in found)


def test_lists_in_a_grid_make_all_combinations(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(
        "presets: [Fast]\n"
        "settings:\n"
        "  - {method: downsample, factor_1: [2, auto], phase: [rotate, fixed]}\n"
        "  - {name: mine, method: cluster}\n"
        "peers:\n"
        "  - {peer: tomesd, ratio: [0.25, 0.5]}\n"
    )
    found = {variant.name: variant for variant in variants.from_grid(path)}
    assert list(found) == [
        "Fast", "ToDo 2", "ToDo 2, fixed", "ToDo auto", "ToDo auto, fixed", "mine", "tomesd 0.25", "tomesd 0.5"
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
    def made():
        sizes, base = [(64, 64), (64, 96)], Request(prompt="")
        scenes = make_scenes(["a", "b"], seeds=[1, 2], sizes=sizes, scales=[2, 3], base=base)
        return [Job(scene, variant) for scene in scenes for variant in chosen]

    assert len(made()) == 2 * 2 * 2 * 2 * len(chosen)
    assert len({job.key for job in made()}) == len({job.image for job in made()}) == len(made())
    assert [job.key for job in made()] == [job.key for job in made()]
    assert {job.scene.request.height for job in made()} == {64, 96}


def test_two_names_of_a_schedule_are_one_scene_and_another_schedule_has_another_key():
    names = [{"sampler": "DPM++ 2M Karras"}, {"sampler": "DPM++ 2M"}, {"sampler": "DPM++ 2M", "schedule": "Trailing"}]
    options = {"seeds": [1], "sizes": [(64, 64)], "scales": [2], "base": Request(prompt="")}
    scenes = make_scenes(["a"], changes=names, **options)
    assert [scene.request.schedule for scene in scenes] == ["Karras", "Trailing"]
    assert len({Job(scene, variants.BASELINE).key for scene in scenes}) == 2


def test_the_key_of_a_job_holds_the_settings_that_have_an_effect(monkeypatch):
    """A row of another default is not taken for one of today's."""

    def key(**changes):
        return Job(Scene(0, Request(prompt="a")), variants.Variant("mine", Settings(factor_1=2, **changes))).key

    assert (today := key()) == key(sx=4, ratio_1=0.75)  # settings of ToMe
    assert today != key(end=0.5)
    monkeypatch.setitem(SETTINGS, "factor_2", replace(SETTINGS["factor_2"], default=1.0))
    assert today != key()
