"""The shape judge finds the objects of a picture and tells their shapes."""

from dataclasses import replace

import numpy as np
import pytest

from todo_lab.pocket.check import judge_figures
from todo_lab.pocket.data.captions import caption
from todo_lab.pocket.data.dataset import unseen_scenes
from todo_lab.pocket.data.render import render
from todo_lab.pocket.data.scenes import SHAPES
from todo_lab.pocket.shape_judge import ShapeJudge, count_right, look, objects, shapes_right


@pytest.fixture(scope="module")
def judge():
    return ShapeJudge()


@pytest.mark.slow
def test_the_judge_is_right_about_drawn_scenes_that_went_through_the_autoencoder(judge, pocket):
    figures = judge_figures(judge, pocket, unseen_scenes(60))
    assert figures["judge, objects"] >= 0.95, figures  # docs/pocket.md has the figures of 200 scenes
    assert figures["judge, count of a scene"] >= 0.95
    assert figures["judge, number of objects"] >= 60


@pytest.mark.parametrize("side", [128, 256])
def test_each_object_is_found_at_its_place(side):
    for scene in unseen_scenes(15):
        image = render(scene, side, side)
        for group in scene.groups:
            found = sorted(centre for _, centre in objects(image, group.colour))
            drawn = sorted((item.x, item.y) for item in scene.items if item.colour == group.colour)
            assert len(found) == len(drawn), caption(scene)
            assert np.allclose(found, drawn, atol=0.06), caption(scene)


def test_another_shape_or_number_is_wrong(judge):
    for scene in unseen_scenes(15):
        found = look(judge, render(scene, 128, 128), scene.groups)
        first = scene.groups[0]
        other = SHAPES[(SHAPES.index(first.shape) + 1) % len(SHAPES)]
        assert shapes_right(found, scene)
        assert not shapes_right(found, replace(scene, groups=(replace(first, shape=other), *scene.groups[1:])))
        assert not count_right(found, replace(scene, groups=(replace(first, count=first.count + 1),)))
    missing = look(judge, render(replace(scene, items=()), 128, 128), scene.groups)
    assert missing == {group.colour: [] for group in scene.groups}
    assert not shapes_right(missing, scene)
    assert not count_right(missing, scene)
