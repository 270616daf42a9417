"""Every metric against a known value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from todo_lab.evaluation.metrics.image_metrics import high_frequency_ratio, measure_difference, ms_ssim
from todo_lab.evaluation.metrics.pretrained_metrics import PretrainedMetrics, fid


def flat(value: int, side: int = 64) -> np.ndarray:
    return np.full((side, side, 3), value, np.uint8)


def textured(side: int = 192, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(60, 196, (side, side, 3), dtype=np.uint8)


def checks(low: int, high: int, side: int = 64) -> np.ndarray:
    rows = np.indices((side, side)).sum(0) % 2
    return np.repeat(np.where(rows, high, low)[..., None], 3, -1).astype(np.uint8)


def test_equal_images():
    found = measure_difference(textured(), textured())
    assert found == {
        "mse": 0,
        "psnr": None,
        "ssim": pytest.approx(1),
        "ms_ssim": pytest.approx(1),
        "high_frequency": pytest.approx(1),
    }


def test_mse_and_psnr_of_a_constant_offset():
    found = measure_difference(flat(100), flat(151))  # 51 of 255 is a fifth
    assert found["mse"] == pytest.approx(0.04)
    assert found["psnr"] == pytest.approx(-10 * math.log10(0.04))


def test_ssim_of_flat_images_is_its_luminance_term():
    a, b, c = 100 / 255, 151 / 255, 0.01**2
    assert measure_difference(flat(100), flat(151))["ssim"] == pytest.approx(
        (2 * a * b + c) / (a * a + b * b + c), abs=1e-6
    )


def test_ms_ssim_of_flat_images_is_their_luminance_term_to_the_power_of_its_scale():
    a, b, c = 100 / 255, 151 / 255, 0.01**2
    luminance = (2 * a * b + c) / (a * a + b * b + c)
    found = ms_ssim(flat(100, 192), flat(151, 192))
    assert found == pytest.approx(luminance**0.1333, abs=1e-4)  # the weight of the coarsest scale in Wang et al. 2003


def test_ms_ssim_falls_with_noise_and_is_not_available_for_small_images():
    image = textured()
    noisy = (image + np.random.default_rng(1).normal(0, 20, image.shape)).clip(0, 255).astype(np.uint8)
    assert 0.3 < ms_ssim(image, noisy) < 0.999
    assert ms_ssim(flat(0, 175), flat(0, 175)) is None
    assert ms_ssim(flat(0, 176), flat(0, 176)) == pytest.approx(1)


def test_energy_is_proportional_to_the_squared_contrast():
    assert high_frequency_ratio(checks(28, 228), checks(78, 178)) == pytest.approx(0.25)
    assert high_frequency_ratio(checks(78, 178), checks(28, 228)) == pytest.approx(4)


def test_energy_counts_high_frequencies_only():
    across = np.arange(64)
    slow = 127 + 100 * np.sin(2 * np.pi * across * 8 / 64)  # 0.125 cycles a pixel
    quick = 20 * np.sin(2 * np.pi * across * 24 / 64)  # 0.375

    def image(row: np.ndarray) -> np.ndarray:
        return np.repeat(np.tile(row.round(), (64, 1))[..., None], 3, -1).astype(np.uint8)

    assert high_frequency_ratio(image(slow + quick), image(slow)) < 0.01
    assert high_frequency_ratio(image(127 + quick), image(slow + quick)) == pytest.approx(
        1, abs=0.05
    )  # rounded to grey levels


def test_a_flat_reference_gives_no_energy_ratio():
    assert high_frequency_ratio(flat(9), checks(0, 255)) is None


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="64 x 64 and 32 x 32"):
        measure_difference(flat(1), flat(1, 32))


def test_metrics_without_weights_are_not_available_and_say_why(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    pretrained = PretrainedMetrics()
    assert pretrained.measure(flat(1), flat(2), "a cat") == {"lpips": None, "dino": None, "clip_score": None}
    assert set(pretrained.missing) == {"LPIPS", "DINO", "CLIP score"}
    assert all(pretrained.missing.values())
    assert fid([flat(1)], [flat(2)]) is None


def test_a_local_dino_model_tells_how_alike_two_images_are(tmp_path):
    """A small one with random weights; its classes are the real ones."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    config = Dinov2Config(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, patch_size=14, image_size=224)
    model = Dinov2Model(config).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights)  # its own start makes all images alike
    model.save_pretrained(tmp_path)
    score = PretrainedMetrics(dino=str(tmp_path)).measure
    image, other = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3)).astype(np.uint8)
    assert score(image, image, "")["dino"] == pytest.approx(1, abs=1e-5)
    assert score(image, other, "")["dino"] < 0.999
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    rows = [torch.from_numpy(((each / 255 - mean) / deviation).transpose(2, 0, 1)).float() for each in (image, other)]
    with torch.no_grad():
        a, b = model(torch.stack(rows)).last_hidden_state[:, 0].numpy()
    assert score(image, other, "")["dino"] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5)


def test_a_local_clip_model_is_used(tmp_path, monkeypatch):
    import torch

    class Model:
        def eval(self):
            return self

        def __call__(self, *, sign):
            return type(
                "Seen",
                (),
                {"image_embeds": sign * torch.tensor([[3.0, 4.0]]), "text_embeds": torch.tensor([[1.0, 0.0]])},
            )

    monkeypatch.setattr("transformers.CLIPModel.from_pretrained", lambda name, local_files_only: Model())
    processor = lambda text, images, **_: {"sign": 1.0 if text == ["yes"] else -1.0}  # noqa: E731
    monkeypatch.setattr("transformers.CLIPProcessor.from_pretrained", lambda name, local_files_only: processor)
    pretrained = PretrainedMetrics(str(tmp_path))
    assert pretrained.measure(flat(1), flat(2), "yes")["clip_score"] == pytest.approx(60)
    assert pretrained.measure(flat(1), flat(2), "no")["clip_score"] == 0
    assert "CLIP score" not in pretrained.missing
