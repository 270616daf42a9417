"""Metrics of an image relative to its baseline that need no pretrained weights."""

from __future__ import annotations

import numpy as np

from todo_core.image_difference import difference

MS_SSIM_LEAST = 176  # pixels per side, so that a window of 11 fits into the coarsest of five scales
CUTOFF = 0.25  # cycles per pixel; the highest possible frequency is 0.5
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def measure_difference(reference: np.ndarray, image: np.ndarray) -> dict[str, float | None]:
    """MSE (0..1), PSNR (dB; None for equal images), SSIM, MS-SSIM and the ratio of high-frequency energy.

    Both are uint8 (h, w, 3). Raises ValueError if the sizes differ.
    """
    apart = difference(reference, image)
    return {
        "mse": apart.mse,
        "psnr": None if apart.mse == 0 else apart.psnr,
        "ssim": apart.ssim,
        "ms_ssim": ms_ssim(reference, image),
        "high_frequency": high_frequency_ratio(reference, image),
    }


def ms_ssim(reference: np.ndarray, image: np.ndarray) -> float | None:
    """Multiscale structural similarity (Wang et al. 2003); None for images smaller than 176 pixels per side."""
    if min(reference.shape[:2]) < MS_SSIM_LEAST:
        return None
    import torch
    from torchmetrics.functional.image import multiscale_structural_similarity_index_measure as measure

    def rows(pixels: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None].float() / 255

    return float(measure(rows(image), rows(reference), data_range=1.0))


def high_frequency_ratio(reference: np.ndarray, image: np.ndarray) -> float | None:
    """Luma energy above 0.25 cycles per pixel, divided by that of the reference; None if the reference has none.

    Below 1 the image is smoother, above 1 noisier. The ToDo paper (arXiv 2402.13573) compares high-pass energy.
    """
    before, after = _high_energy(reference), _high_energy(image)
    return after / before if before > 1e-9 else None


def _high_energy(pixels: np.ndarray) -> float:
    """Mean squared amplitude of the luma (0..1) above the cutoff, by Parseval's theorem."""
    luma = pixels.astype(np.float64) @ np.array(LUMA) / 255
    height, width = luma.shape
    spectrum = np.abs(np.fft.fft2(luma)) ** 2 / (height * width) ** 2
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
    return float(spectrum[frequency > CUTOFF].sum())
