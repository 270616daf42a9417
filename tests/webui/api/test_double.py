"""The double of the WebUI, on which the extension's quick tests run, calls a script in the real WebUI's order."""

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


@pytest.mark.parametrize("case", REQUESTS)
def test_the_double_calls_a_script_in_the_webuis_order(webui, double, case):
    request, processing = REQUESTS[case]
    module, simulated = double
    webui.txt2img(**request)
    real = webui.get("/todo-probe/order")
    simulated.generate(module.Processing(**processing))
    announced = "process_before_every_sampling"
    while real.count(announced) > simulated.events.count(announced) and webui.family == "forge":
        real.remove(announced)  # Forge announces the hires pass twice
    assert simulated.events == real
