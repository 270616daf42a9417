"""The double of the WebUI, on which the extension's quick tests run, calls a script in the real WebUI's order."""

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

EXTENSION = Path(__file__).parents[2] / "todo_core" / "webui"
REQUESTS = {
    "hires": ({}, {}),
    "no hires": ({"enable_hr": False}, {"enable_hr": False}),
    "two batches": ({"n_iter": 2}, {"n_iter": 2, "seeds": [1, 2]}),
    "one batch of two": ({"batch_size": 2}, {"batch_size": 2, "seeds": [1, 2]}),
}


class Silent:
    """A script that does nothing."""

    def __getattr__(self, event):
        return lambda *args, **kwargs: None


@pytest.fixture
def double(monkeypatch):
    monkeypatch.syspath_prepend(EXTENSION / "double")
    from tests.todo_core.webui import webui_double

    assert Path(sys.modules["modules"].__file__).is_relative_to(EXTENSION)
    unet = SimpleNamespace(diffusion_model=lambda x, timesteps, context: x)
    model = SimpleNamespace(model=unet, parameters=lambda: iter([torch.zeros(1)]))
    return webui_double, webui_double.WebUI(Silent(), model)


def announced_once(events):
    """The events without the second announcement of each hires pass, which Forge makes."""
    announced = "process_before_every_sampling"
    batches = ((event, len(list(group))) for event, group in itertools.groupby(events))
    return [event for event, count in batches for _ in range(min(count, 2) if event == announced else count)]


@pytest.mark.parametrize("case", REQUESTS)
def test_the_double_calls_a_script_in_the_webuis_order(webui, double, case):
    if webui.family == "sdnext":
        pytest.skip("test_sdnext.py has this test for the double of SD.Next")
    request, processing = REQUESTS[case]
    module, simulated = double
    webui.txt2img(**request)
    real = webui.get("/todo-probe/order")
    if webui.family == "forge":
        real = announced_once(real)
    simulated.generate(module.Processing(**processing))
    assert simulated.events == real


def test_the_double_of_the_patcher_does_what_the_real_one_does(webui):
    """tests/todo_core/hosts/test_forge.py has the double's half of this test."""
    if webui.family != "forge":
        pytest.skip("the Forge family has patchers")
    from tests.todo_core.hosts.forge_double import contract

    webui.baseline()  # loads the model
    patcher, block = contract()
    if webui.is_neo:  # so our patches are functions
        patcher["a clone copies the object of a method"] = False
    assert webui.get("/todo-probe/patcher") == [patcher, block]
