"""The doubles of the WebUIs, on which the extension's quick tests run, call a script in the real one's order."""

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

EXTENSION = Path(__file__).parents[2] / "todo_core" / "webui"
REQUESTS = [{}, {"enable_hr": False}, {"n_iter": 2}, {"batch_size": 2}]


class Silent:
    """A script that does nothing."""

    def __getattr__(self, event):
        return lambda *args, **kwargs: None


@pytest.fixture
def order_of(webui, monkeypatch):
    """A function from a request to the events of the double."""
    monkeypatch.syspath_prepend(EXTENSION / "double")
    from tests.models import diffusers_unet
    from tests.todo_core.webui.sdnext_double import PipelineProcessing, SDNext
    from tests.todo_core.webui.webui_double import Processing, WebUI

    assert Path(sys.modules["modules"].__file__).is_relative_to(EXTENSION)
    unet = SimpleNamespace(diffusion_model=lambda x, timesteps, context: x)
    model = SimpleNamespace(model=unet, parameters=lambda: iter([torch.zeros(1)]))

    def order(request):
        seeds = [1, 2] if {"n_iter", "batch_size"} & request.keys() else [1]
        if webui.family == "sdnext":
            simulated, kind = SDNext(Silent(), diffusers_unet(), monkeypatch), PipelineProcessing
        else:
            simulated, kind = WebUI(Silent(), model), Processing
        simulated.generate(kind(steps=1, seeds=seeds, **request))
        return simulated.events

    return order


def announced_once(events):
    """The events without the second announcement of each hires pass, which Forge makes."""
    announced = "process_before_every_sampling"
    batches = ((event, len(list(group))) for event, group in itertools.groupby(events))
    return [event for event, count in batches for _ in range(min(count, 2) if event == announced else count)]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_the_double_calls_a_script_in_the_webuis_order(webui, order_of, request_):
    webui.txt2img(**request_)
    real = webui.get("/todo-probe/order")
    assert order_of(request_) == (announced_once(real) if webui.family == "forge" else real)


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
