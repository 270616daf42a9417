"""Differences between two images of the same size, by scikit-image, which the WebUI has installed too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HEAT_GAIN = 4.0  # a difference of a quarter of full scale is the hottest colour


@dataclass(frozen=True)
class Difference:
    """MSE over values 0..1, PSNR in decibels (infinite for equal images), SSIM (1 for equal images)."""

    mse: float
    psnr: float
    ssim: float


def difference(reference: np.ndarray, image: np.ndarray) -> Difference:
    """Compare two uint8 images (h, w, 3). Raises ValueError if their sizes differ.

    SSIM as in Wang et al. 2004: Gaussian window, sigma 1.5, averaged over the channels.
    """
    from skimage import metrics

    _same_size(reference, image)
    first, second = reference.astype(np.float64) / 255, image.astype(np.float64) / 255
    mse = float(metrics.mean_squared_error(first, second))
    psnr = float(metrics.peak_signal_noise_ratio(first, second, data_range=1)) if mse else float("inf")
    ssim = metrics.structural_similarity(
        first, second, channel_axis=-1, data_range=1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )
    return Difference(mse, psnr, float(ssim))


def heat_map(reference: np.ndarray, image: np.ndarray, gain: float = HEAT_GAIN) -> np.ndarray:
    """Where two uint8 images differ, uint8 (h, w, 3): black where they are equal, then red, yellow, white.

    It shows the absolute difference of the channel that differs most, times `gain`.
    """
    _same_size(reference, image)
    largest = np.abs(reference.astype(np.float32) - image.astype(np.float32)).max(axis=-1) / 255 * gain
    return (np.clip(3 * largest[..., None] - np.arange(3), 0, 1) * 255).round().astype(np.uint8)


def _same_size(reference: np.ndarray, image: np.ndarray) -> None:
    if reference.shape != image.shape:
        first, second = (f"{width} x {height}" for height, width, *_ in (reference.shape, image.shape))
        raise ValueError(f"images of {first} and {second} cannot be compared")
