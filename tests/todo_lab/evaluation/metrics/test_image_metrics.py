"""Every metric against a known value."""

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from todo_lab.evaluation.backends.local import CPU_ATTENTION
from todo_lab.evaluation.metrics import image_metrics
from todo_lab.evaluation.metrics.image_metrics import ImageMetrics
from todo_lab.evaluation.metrics.st_lpips import ShiftTolerantLPIPS


def measure(reference, image):
    return ImageMetrics().measure(reference, image)


def rows(pixels):
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].double() / 255


def high_frequency_ratio(reference, image):
    return image_metrics.high_frequency_ratio(rows(reference), rows(image))


def flat(value):
    return np.full((64, 64, 3), value, np.uint8)


def textured(side=192, seed=0):
    return np.random.default_rng(seed).integers(60, 196, (side, side, 3), dtype=np.uint8)


def test_equal_images():
    found = measure(textured(), textured())
    assert (found["mse"], found["psnr"], found["st_lpips"]) == (0, None, 0)
    assert (found["ssim"], found["high_frequency"]) == pytest.approx((1, 1))


def test_energy_counts_high_frequencies_only():
    across = np.arange(64)
    slow = 127 + 100 * np.sin(2 * np.pi * across * 8 / 64)  # 0.125 cycles a pixel
    quick = 20 * np.sin(2 * np.pi * across * 24 / 64)  # 0.375

    def image(row):
        return np.repeat(np.tile(row.round(), (64, 1))[..., None], 3, -1).astype(np.uint8)

    assert high_frequency_ratio(image(slow + quick), image(slow)) < 0.01
    ratio = high_frequency_ratio(image(127 + quick), image(slow + quick))
    assert ratio == pytest.approx(1, abs=0.05)  # rounded to grey levels
    assert high_frequency_ratio(image(127 + quick), image(127 + quick / 2)) == pytest.approx(0.25, abs=0.02)
    assert high_frequency_ratio(flat(9), image(quick)) is None


@pytest.mark.parametrize(
    ("size", "expected"), [((64, 64), 0.0030647945), ((100, 75), 0.0032003706), ((255, 257), 0.0026966606)]
)
def test_st_lpips_is_that_of_its_package(size, expected):
    """The expected values are those of stlpips_pytorch 0.0.2, with its own code."""
    metric = ShiftTolerantLPIPS()
    torch.manual_seed(0)
    image = torch.rand(1, 3, *size)
    other = (image + 0.1 * torch.randn_like(image)).clamp(0, 1)
    layers = metric.layers(image)
    assert metric.distance(layers, metric.layers(other)) == pytest.approx(expected, rel=1e-5)
    assert metric.distance(layers, layers) == 0


def test_the_layers_of_another_reference_are_computed_anew():
    metrics = ImageMetrics()
    before, after, other = textured(64), textured(64, 1), textured(64, 2)
    first = metrics.measure(before, after)["st_lpips"]
    assert metrics.measure(other, after)["st_lpips"] != first
    assert metrics.measure(before, after)["st_lpips"] == first


def test_a_metric_without_its_package_is_not_available_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    metrics = ImageMetrics()
    assert metrics.measure(flat(1), flat(2))["st_lpips"] is None
    assert metrics.missing == {"ST-LPIPS": "pip install --no-deps stlpips-pytorch==0.0.2"}


def test_multiplications_of_attention_on_a_cpu_are_counted():
    queries = torch.ones(2, 4, 5, 8)
    with torch.inference_mode(), FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as counted:
        functional.scaled_dot_product_attention(queries, queries[:, :, :3], queries[:, :, :3])
    assert counted.get_total_flops() == 2 * (2 * 4 * 5 * 3 * (8 + 8))
