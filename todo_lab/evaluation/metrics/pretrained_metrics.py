"""LPIPS, DINO, CLIP score and FID. Each is available only if its weights are on this disk; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

log = logging.getLogger(__name__)

LPIPS_WEIGHTS = "alexnet-owt-7be5be79.pth"  # torchvision's file name
FID_WEIGHTS = "weights-inception-2015-12-05-6726825d.pth"  # torch-fidelity's file name
DINO_SIDE = 224  # pixels
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what the model learned with
FID_LEAST = 50  # images; the estimate is biased, and useless with fewer (Chong and Forsyth 2020)


class PretrainedMetrics:
    """The metrics with weights on this disk. ``missing`` says why the others are not available."""

    def __init__(self, clip: str | None = None, dino: str | None = None) -> None:
        """Folders of a transformers CLIPModel and of a DINO model, or their names in the local Hugging Face cache."""
        self.missing: dict[str, str] = {}
        self._lpips = self._try("LPIPS", _lpips)
        self._dino = self._try("DINO", lambda: _dino(dino))
        self._clip = self._try("CLIP score", lambda: _clip(clip))

    def measure(self, reference: np.ndarray, image: np.ndarray, prompt: str) -> dict[str, float | None]:
        """LPIPS (AlexNet) and DINO to the reference, and the CLIP score of image and prompt; None if not available."""
        return {
            "lpips": self._lpips and self._lpips(reference, image),
            "dino": self._dino and self._dino(reference, image),
            "clip_score": self._clip and self._clip(image, prompt),
        }

    def _try(self, name: str, make: Any) -> Any:
        try:
            return make()
        except (ImportError, OSError, ValueError, AttributeError, RuntimeError) as error:
            self.missing[name] = (str(error).splitlines() or [type(error).__name__])[0]
            return None


def fid(references: Sequence[np.ndarray], images: Sequence[np.ndarray]) -> float | None:
    """Frechet inception distance of a variant's images to the baselines; None without weights or enough images."""
    if len(images) < FID_LEAST or not has_fid_weights():
        return None
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance()
    for stack, real in ((references, True), (images, False)):
        for pixels in stack:
            metric.update(_rows(pixels, torch.uint8), real=real)
    return float(metric.compute())


def has_fid_weights() -> bool:
    """Whether torch-fidelity is installed and the weights of its inception network are on this disk."""
    return importlib.util.find_spec("torch_fidelity") is not None and _stored(FID_WEIGHTS)


def _stored(name: str) -> bool:
    return Path(torch.hub.get_dir(), "checkpoints", name).is_file()


def _lpips() -> Any:
    if importlib.util.find_spec("torchvision") is None:
        raise ImportError("torchvision is not installed")
    if not _stored(LPIPS_WEIGHTS):
        raise OSError(f"{LPIPS_WEIGHTS} is not in torch's checkpoint folder")
    from torchmetrics.functional.image import learned_perceptual_image_patch_similarity as measure

    def score(reference: np.ndarray, image: np.ndarray) -> float:
        return float(measure(_rows(image), _rows(reference), net_type="alex", normalize=True))

    return score


def _dino(name: str | None) -> Any:
    if name is None:
        raise OSError("--dino names no model")
    from transformers import AutoModel

    model = AutoModel.from_pretrained(name, local_files_only=True).eval()
    mean, deviation = (torch.tensor(channels).view(1, 3, 1, 1) for channels in (IMAGENET_MEAN, IMAGENET_DEVIATION))

    def feature(pixels: np.ndarray) -> Tensor:
        small = functional.interpolate(_rows(pixels), (DINO_SIDE, DINO_SIDE), mode="bicubic", antialias=True)
        with torch.inference_mode():
            return model((small - mean) / deviation).last_hidden_state[:, 0]  # the class token

    def score(reference: np.ndarray, image: np.ndarray) -> float:
        """The cosine of the class tokens of two images (DreamBooth, Ruiz et al. 2023, section 4.2)."""
        return float(functional.cosine_similarity(feature(reference), feature(image)))

    return score


def _clip(name: str | None) -> Any:
    if name is None:
        raise OSError("--clip names no model")
    from transformers import CLIPModel, CLIPProcessor

    model = CLIPModel.from_pretrained(name, local_files_only=True).eval()
    processor = CLIPProcessor.from_pretrained(name, local_files_only=True)

    def score(image: np.ndarray, prompt: str) -> float:
        """100 times the cosine of image and text, at least 0 (Hessel et al. 2021, without their factor 2.5)."""
        inputs = processor(text=[prompt], images=[image], return_tensors="pt", padding=True, truncation=True)
        with torch.inference_mode():
            output = model(**inputs)
        cosine = functional.cosine_similarity(output.image_embeds, output.text_embeds)
        return max(0.0, 100 * float(cosine))

    return score


def _rows(pixels: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
    rows = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
    return rows if dtype == torch.uint8 else rows.float() / 255
