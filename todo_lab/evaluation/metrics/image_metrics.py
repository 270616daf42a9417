"""Figures of an image beside its unreduced one. Those that need weights which are not on this disk are None."""

from __future__ import annotations

import numpy as np

from todo_core.image_difference import difference

MS_SSIM_LEAST = 176  # pixels a side: a window of 11 at the coarsest of five scales
HIGH = 0.25  # cycles a pixel, half of what the grid can hold
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def figures(reference: np.ndarray, image: np.ndarray) -> dict[str, float | None]:
    """MSE (0..1), PSNR (dB; None for equal images), SSIM, MS-SSIM and the ratio of high-frequency energy.

    Both are uint8 (h, w, 3). Raises ValueError where the sizes differ.
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
    """Multiscale structural similarity (Wang et al. 2003) by torchmetrics; None for images under 176 pixels a side."""
    if min(reference.shape[:2]) < MS_SSIM_LEAST:
        return None
    import torch
    from torchmetrics.functional.image import multiscale_structural_similarity_index_measure as measure

    def rows(pixels: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None].float() / 255

    return float(measure(rows(image), rows(reference), data_range=1.0))


def high_frequency_ratio(reference: np.ndarray, image: np.ndarray) -> float | None:
    """Energy of the image's luma above 0.25 cycles a pixel over that of the reference; None where that has none.

    1 keeps the detail, less is smoother, more is noisier. The ToDo paper (arXiv 2402.13573) compares high-pass energy.
    """
    before, after = _high_energy(reference), _high_energy(image)
    return after / before if before > 1e-9 else None


def _high_energy(pixels: np.ndarray) -> float:
    """Mean squared amplitude of the luma (0..1) above the cutoff, by Parseval's theorem."""
    luma = pixels.astype(np.float64) @ np.array(LUMA) / 255
    height, width = luma.shape
    spectrum = np.abs(np.fft.fft2(luma)) ** 2 / (height * width) ** 2
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
    return float(spectrum[frequency > HIGH].sum())
