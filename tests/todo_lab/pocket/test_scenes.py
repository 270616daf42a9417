"""Scenes, pictures, captions and the colour reader: what the pocket model is trained and tested on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from todo_lab.pocket import colour_reader
from todo_lab.pocket.data.captions import caption
from todo_lab.pocket.data.dataset import UNSEEN, training_scenes, unseen_scenes
from todo_lab.pocket.data.palette import BACKGROUNDS
from todo_lab.pocket.data.render import render
from todo_lab.pocket.data.scenes import random_scene
from todo_lab.pocket.model.vocabulary import END, START, vocabulary
from todo_lab.sampling.clip_tokenizer import MAX_TOKENS, split

seeds = st.integers(0, 2**31)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(16, 90), st.integers(16, 90))
def test_a_scene_is_drawn_the_same_each_time_at_any_size(seed, width, height):
    picture = render(random_scene(seed), width, height)
    assert picture.shape == (height, width, 3)
    assert picture.dtype == np.uint8
    assert np.array_equal(picture, render(random_scene(seed), width, height))


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_a_scene_has_what_its_caption_says(seed):
    scene = random_scene(seed)
    assert scene.background in BACKGROUNDS
    assert sum(group.count for group in scene.groups) == len(scene.items) <= 4
    for group in scene.groups:
        same = [item for item in scene.items if (item.colour, item.shape) == (group.colour, group.shape)]
        assert len(same) == group.count
        for item in same if group.place else ():
            side = {"left": item.x < 0.5, "right": item.x > 0.5, "top": item.y < 0.5, "bottom": item.y > 0.5}
            assert side.get(group.place, True)
    assert all(item.radius < min(item.x, item.y, 1 - item.x, 1 - item.y) + 1e-9 for item in scene.items)


@settings(max_examples=200, deadline=None)
@given(seeds, st.integers(0, 5))
def test_captions_are_words_that_the_vocabulary_knows(seed, wording):
    text = caption(random_scene(seed), wording)
    assert text == caption(random_scene(seed), wording)
    assert vocabulary().encode([text]).shape == (1, MAX_TOKENS)


def test_a_caption_becomes_clips_own_tokens():
    # 320, 736, 7117, 525, 13717 are what CLIP's tokenizer gives for these words
    rows = vocabulary().encode(["A red circle, on stripes!"])[0]
    tokens = [vocabulary().tokens[row] for row in rows]
    assert tokens[:7] == [START, 320, 736, 7117, 525, vocabulary().words["stripes"][0], END]
    assert tokens[6:] == [END] * (MAX_TOKENS - 6)


def test_a_caption_of_unknown_or_too_many_words_is_rejected():
    with pytest.raises(ValueError, match=r"a zebra.*never learned: zebra.*circle"):
        vocabulary().encode(["a zebra on stripes"])
    with pytest.raises(ValueError, match="at most 75 fit"):
        vocabulary().encode(["red " * 76])


def test_merges_split_lowest_rank_first():
    ranks = {("a", "b"): 1, ("b", "c</w>"): 0}
    assert split("abc", ranks) == ["a", "bc</w>"]
    assert split("abab", {("a", "b"): 0, ("a", "b</w>"): 1, ("ab", "ab</w>"): 2}) == ["abab</w>"]


def test_held_out_combinations_are_never_trained_on():
    unseen = unseen_scenes(40)
    assert all(scene.held_out and scene.seed >= UNSEEN for scene in unseen)
    trained = training_scenes(400)
    assert not any(scene.held_out for scene in trained)

    def combination(scene):
        return scene.background, tuple((group.colour, group.shape) for group in scene.groups)

    assert {combination(scene) for scene in unseen}.isdisjoint({combination(scene) for scene in trained})


def test_the_colour_reader_is_right_about_drawn_scenes_and_sees_what_is_wrong():
    scenes = unseen_scenes(60)
    for scene, other in zip(scenes, scenes[1:] + scenes[:1], strict=True):
        drawn = render(scene, 96, 96)
        assert colour_reader.colours_right(drawn, scene), caption(scene)
        assert colour_reader.background_right(drawn, scene), caption(scene)
        wanted, shown = ({group.colour for group in s.groups} for s in (other, scene))
        if not wanted <= shown:  # a colour is missing
            assert not colour_reader.colours_right(drawn, other)
        assert colour_reader.background_right(drawn, other) == (scene.background == other.background)
