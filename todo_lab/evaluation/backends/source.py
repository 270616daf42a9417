"""A description of the backend that can be sent to other machines, which then load the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from .backend import Backend
from .local import Local
from .webui import UPSCALER, WebUI

POCKET = "pocket"


@dataclass(frozen=True)
class Source:
    """Where images come from: ``model`` is "pocket", a checkpoint or a diffusers folder; ``webui`` is a URL instead.

    ``cores`` limits torch's threads; None keeps torch's choice. ``weights`` replace those of the pocket model. With
    ``counts`` a local backend counts the multiplications of each hires pass.
    """

    model: str = POCKET
    webui: str | None = None
    upscaler: str = UPSCALER
    device: str = "cpu"
    dtype: str = "float32"
    cores: int | None = None
    weights: str | None = None
    counts: bool = False
    peers: dict[str, str] = field(default_factory=dict, hash=False)

    def open(self) -> Backend:
        """Load the model, or connect to the WebUI."""
        if self.webui:
            return WebUI(self.webui, upscaler=self.upscaler)
        if self.cores:
            torch.set_num_threads(self.cores)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 is float32
        options = {"device": self.device, "dtype": getattr(torch, self.dtype)}
        peers = {name: Path(path) for name, path in self.peers.items() if path}
        if self.model == POCKET:
            from ...pocket.model.pocket_model import Pocket

            return Local(Pocket(Path(self.weights) if self.weights else None, **options), peers, counts=self.counts)
        from ...sampling import checkpoints

        return Local(checkpoints.load(Path(self.model), **options), peers, counts=self.counts)
