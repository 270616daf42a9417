"""Jobs in which the WebUI puts another model in place, or changes it: refiner, hires checkpoint, reload, LoRA."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ..helpers import FACTOR_2, REDUCED, Refused, assert_reduced, reduced

BOTH_PASSES = {"factor_1": 2, "passes": "all", "start": 0, "end": 1}


def unets(events):
    """The UNets that these steps call, in order, without repeats."""
    return [*dict.fromkeys(call["unet"] for event in events for call in event["calls"])]


def assert_every_call_is_reduced(result, events):
    assert all(call["tokens"] == 4 * call["keys"] and call["hooks"] for event in events for call in event["calls"])
    assert result.hooks_left == 0


def test_a_refiner_of_another_config_in_the_hires_pass_is_reduced_from_its_first_step(webui, other_checkpoint):
    """The contract has one in the first pass."""
    options = {"sd_checkpoints_limit": 1, "hires_fix_refiner_pass": "both passes"}
    refiner = {"refiner_checkpoint": other_checkpoint, "refiner_switch_at": 0.5, "override_settings": options}
    result = webui.txt2img(FACTOR_2, **refiner)
    assert_every_call_is_reduced(result, result.hires)
    assert "Refiner" in result.infotext
    assert unets(result.hires)[-1] != unets(result.first)[0]
    assert reduced(result.first) == set()
    assert np.array_equal(webui.txt2img().pixels, webui.baseline().pixels)


def test_a_hires_checkpoint_of_another_config_is_reduced(webui, other_checkpoint):
    result = assert_reduced(webui, BOTH_PASSES, first={(64, 16)}, hr_checkpoint_name=other_checkpoint)
    (first,), (hires,) = unets(result.first), unets(result.hires)
    assert first != hires
    assert_every_call_is_reduced(result, result.events)


def test_a_switch_to_sdxl_is_planned_anew(webui, sdxl_checkpoint):
    """With a prompt of its own: Forge Neo gives the hires pass the first pass's text of an equal prompt, and fails."""
    result = webui.txt2img(BOTH_PASSES, hr_checkpoint_name=sdxl_checkpoint, hr_prompt="a dog")
    assert reduced(result.first) == {(64, 16)}
    assert reduced(result.hires) == {(64, 16)}, "the hires latent has 256 tokens, SDXL's finest attention 64"


def test_a_checkpoint_that_was_unloaded_and_loaded_again_is_reduced(webui):
    before = webui.txt2img(FACTOR_2)
    webui.post("/sdapi/v1/unload-checkpoint")
    try:
        webui.post("/sdapi/v1/reload-checkpoint")
    except Refused as refused:
        if refused.status != 404:
            raise
        pytest.skip("this WebUI cannot reload a checkpoint by a request")
    after = webui.txt2img(FACTOR_2)
    assert reduced(after.hires) == REDUCED
    assert np.array_equal(after.pixels, before.pixels)


@pytest.fixture
def lora(webui):
    """The name of a random LoRA that the WebUI has in its folder for this test."""
    webui.txt2img(enable_hr=False, steps=1)  # loads the model: the request before may have used another one
    folder, width = webui.get("/todo-probe/lora")
    name = "lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_k"
    random = torch.Generator().manual_seed(1)
    path = Path(folder) / "todo-test-lora.safetensors"
    tensors = {"lora_down": torch.randn(4, width, generator=random), "lora_up": torch.randn(width, 4, generator=random)}
    path.parent.mkdir(exist_ok=True)
    save_file({f"{name}.{kind}.weight": tensor for kind, tensor in tensors.items()}, path)
    webui.post("/sdapi/v1/refresh-loras")
    yield path.stem
    path.unlink()
    webui.post("/sdapi/v1/refresh-loras")


def test_a_lora_acts_and_is_reduced(webui, lora):
    prompt = f"a cat <lora:{lora}:1>"
    assert not np.array_equal(webui.baseline(prompt=prompt).pixels, webui.baseline().pixels), "the LoRA acts"
    assert_reduced(webui, prompt=prompt)
    assert np.array_equal(webui.txt2img().pixels, webui.baseline().pixels)
