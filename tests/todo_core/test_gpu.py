"""What only a GPU can tell. Skipped elsewhere: python -m pytest -m gpu tests/todo_core/test_gpu.py"""

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.todo_core.patching.test_plan import course_of
from todo_core import Session, Settings, TokenGrid
from todo_core.hosts import detect
from todo_core.patching.facts import Pass
from todo_core.patching.steps import rows_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

STEPS, SIDES = 8, (31, 45)
TOKENS = {"interval": 1, "start": 0, "end": 1}
OFF = {**TOKENS, "factor_1": 1, "factor_2": 1}
REDUCED = {
    "ToDo 2": {**OFF, "factor_1": 2},
    "ToDo 2, area": {**OFF, "factor_1": 2, "resample": "area"},
    "ToDo 2, max": {**OFF, "factor_1": 2, "resample": "max"},
    "ToMe 0.5": {"method": "similarity", "target": "all", "ratio_1": 0.5, **TOKENS},
    "ToMe 0.5, keys": {"method": "similarity", "ratio_1": 0.5, **TOKENS},
    "cluster 0.5": {"method": "cluster", "ratio_1": 0.5, **TOKENS},
}
PREDICTED = {
    "deep layers": {**OFF, "interval": 2, "predict": "deep"},
    "whole steps": {**OFF, "interval": 2, "predict": "whole"},
    "deep layers, measured": {**OFF, "factor_1": 2, "interval": "auto", "predict": "deep"},
    "whole steps, measured": {**OFF, "factor_1": 2, "interval": "auto", "predict": "whole", "tolerance": 1},
    "both, measured": {**OFF, "factor_1": 2, "interval": "auto", "tolerance": 0.5},
}
ALL = REDUCED | PREDICTED
ROUNDING = {"cluster": 2e-2}  # a token at the border of two groups may change sides
each = pytest.mark.parametrize("settings", ALL.values(), ids=ALL)


def unet_of(device, dtype=torch.float32):
    """SD 1.5's layout, narrow; the same weights on each device."""
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(64, 128, 128, 128),
        cross_attention_dim=64,
        attention_head_dim=4,
        transformer_layers_per_block=(1, 2, 2, 1),  # enough work below level 1 to predict it
    )
    return unet.requires_grad_(False).eval().to(device, dtype)


@pytest.fixture(autouse=True)
def _exact():
    """float32 is float32: no TF32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@torch.inference_mode()
def outputs(unet, settings):
    """What the UNet makes in each step of a pass, two rows of one image, on the CPU and in float32."""
    facts, made = Pass(TokenGrid(*SIDES), STEPS, course_of((0.05,) * STEPS)), []
    session = Session(detect(unet), Settings(**settings), facts).attach()
    like = {"device": unet.device, "dtype": unet.dtype}
    noise = torch.Generator().manual_seed(1)
    latent, drift = (torch.randn(1, 4, *SIDES, generator=noise).expand(2, -1, -1, -1) for _ in range(2))
    text = torch.randn(2, 77, 64, generator=noise).to(**like)
    try:
        for step in range(STEPS):
            session.begin_step(step, STEPS, rows_of((7, 7)))
            x, time = (latent + 0.1 * step * drift).to(**like), torch.tensor(900.0 - 100 * step, device=unet.device)
            made.append(unet(x, time, encoder_hidden_states=text).sample)
    finally:
        session.remove()
    assert session.record.acted
    assert session.record.notes == []
    return [y.float().cpu() for y in made]


@each
def test_a_gpu_computes_what_a_cpu_does(settings):
    here, there = outputs(unet_of("cpu"), settings), outputs(unet_of("cuda"), settings)
    for step, (cpu, gpu) in enumerate(zip(here, there, strict=True)):
        assert (gpu - cpu).norm() / cpu.norm() < ROUNDING.get(settings.get("method"), 2e-3), step


@each
def test_the_same_pass_twice_is_the_same(settings):
    unet = unet_of("cuda")
    first, second = outputs(unet, settings), outputs(unet, settings)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(first, second, strict=True))


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(settings, dtype):
    """As near to float32 as the unpatched model is, within a factor."""
    exact, half = outputs(unet_of("cuda"), settings), outputs(unet_of("cuda", dtype), settings)
    for y, z in zip(exact, half, strict=True):
        assert z.isfinite().all()
        assert (z - y).norm() / y.norm() < (0.05 if dtype is torch.float16 else 0.2)


@each
def test_flash_attention_takes_the_shorter_keys(settings):
    unet = unet_of("cuda", torch.float16)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert all(y.isfinite().all() for y in outputs(unet, settings))


@each
def test_nothing_waits_inside_a_transformer(settings):
    """torch raises where a program waits for the GPU. The first pass fills the caches.

    Between transformers, the hooks of the UNet may wait once a call.
    """
    unet = unet_of("cuda", torch.float16)
    outputs(unet, settings)
    mode = torch.cuda.set_sync_debug_mode
    for module in {site.transformer for site in detect(unet).sites}:
        module.register_forward_pre_hook(lambda *_: mode("error"), prepend=True)
        module.register_forward_hook(lambda *_: mode("default"), always_call=True)
    try:
        outputs(unet, settings)
    finally:
        mode("default")


@each
def test_memory_is_free_after_a_pass(settings):
    unet = unet_of("cuda")
    outputs(unet, settings)  # fills the caches of token positions, which stay
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    outputs(unet, settings)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
