"""Jobs beside each other, one that is skipped, and a LoRA."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ..helpers import FACTOR_2, assert_reduced


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


def test_of_two_jobs_at_once_each_has_its_own_settings(webui):
    """The WebUI runs one after the other."""
    alone = [webui.txt2img(FACTOR_2), webui.baseline()]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(webui.txt2img, [FACTOR_2, None]))
    assert [np.array_equal(a.pixels, b.pixels) for a, b in zip(alone, together, strict=True)] == [True, True]
    assert ["ToDo method: downsample" in result.infotext for result in together] == [True, False]


def test_a_skipped_image_is_there_and_told_and_the_next_is_as_before(webui):
    result = webui.txt2img(FACTOR_2, happens={6: "skip"})
    assert len(result.calls) == 6
    assert len(result.pixels) == 1
    assert result.comments.strip().endswith("in 2 of 2 steps; interrupted") or webui.family == "sdnext"
    assert_reduced(webui)
