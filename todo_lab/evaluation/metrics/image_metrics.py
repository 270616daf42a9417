"""Metrics of an image relative to its baseline, computed on the model's device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from todo_core.image_difference import difference

from .st_lpips import ShiftTolerantLPIPS

CUTOFF = 0.25  # cycles per pixel; the highest possible frequency is 0.5
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


class ImageMetrics:
    """All metrics that are available here. ``missing`` says why others are not."""

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self._device = device
        self._st_lpips: ShiftTolerantLPIPS | None = None
        self._reference: tuple[np.ndarray, list[Tensor]] | None = None  # the last one and its layers
        self.missing: dict[str, str] = {}
        try:
            self._st_lpips = ShiftTolerantLPIPS(device)
        except ImportError as error:
            self.missing = {"ST-LPIPS": str(error)}

    def measure(self, reference: np.ndarray, image: np.ndarray) -> dict[str, float | None]:
        """MSE (0..1), PSNR (dB; None for equal images), SSIM, high-frequency energy and ST-LPIPS.

        Both are uint8 (h, w, 3). Raises ValueError if the sizes differ.
        """
        apart = difference(reference, image)
        before, after = self._rows(reference), self._rows(image)
        return {
            "mse": apart.mse,
            "psnr": apart.psnr if apart.mse else None,
            "ssim": apart.ssim,
            "high_frequency": high_frequency_ratio(before, after),
            "st_lpips": self._learned(reference, before, after),
        }

    def _learned(self, reference: np.ndarray, before: Tensor, after: Tensor) -> float | None:
        if self._st_lpips is None:
            return None
        if self._reference is None or self._reference[0] is not reference:
            self._reference = reference, self._st_lpips.layers(before)
        return self._st_lpips.distance(self._reference[1], self._st_lpips.layers(after))

    def _rows(self, pixels: np.ndarray) -> Tensor:
        """(1, 3, h, w) in 0..1."""
        rows = torch.tensor(pixels, device=self._device)
        return rows.permute(2, 0, 1)[None].double() / 255


def high_frequency_ratio(reference: Tensor, image: Tensor) -> float | None:
    """Luma energy above 0.25 cycles per pixel, divided by that of the reference; None if the reference has none.

    Below 1 the image is smoother, above 1 noisier. The ToDo paper (arXiv 2402.13573) compares high-pass energy.
    """
    before, after = _high_energy(reference), _high_energy(image)
    return after / before if before > 1e-9 else None


def _high_energy(rows: Tensor) -> float:
    """Mean squared amplitude of the luma above the cutoff, by Parseval's theorem."""
    luma = torch.einsum("bchw,c->bhw", rows, rows.new_tensor(LUMA))[0]
    height, width = luma.shape
    down, across = (torch.fft.fftfreq(side, dtype=luma.dtype, device=luma.device) for side in (height, width))
    high = torch.hypot(down[:, None], across[None]) > CUTOFF
    return float((torch.fft.fft2(luma).abs() / (height * width)).square()[high].sum())
