"""The double of ComfyUI, on which the quick tests run, does what the real one does."""

from tests.todo_core.comfyui.test_nodes import contract

from .helpers import text_to_image
from .probe.sampling_contract import without_repeats


def test_the_double_does_what_the_real_one_does(comfyui, seed):
    watched = lambda graph, model: graph("ToDoProbeContract", model=model)[0]  # noqa: E731
    result = comfyui.run(text_to_image(comfyui, seed=seed, size=(128, 128), steps=2, after=watched))
    assert result.ok, result.error
    facts = next(each for each in result.seen if isinstance(each, list))
    assert without_repeats(facts) == contract()
