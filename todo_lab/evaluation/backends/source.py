"""From the command line's words to a backend; the description travels to other machines, the model does not."""

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
    """What makes the images: ``model`` is "pocket", a checkpoint or a folder of diffusers'; ``webui`` a URL instead.

    ``cores`` are those that torch computes on; None leaves its choice. ``weights`` are other ones for the pocket model.
    """

    model: str = POCKET
    webui: str | None = None
    upscaler: str = UPSCALER
    device: str = "cpu"
    dtype: str = "float32"
    cores: int | None = None
    weights: str | None = None
    peers: dict[str, str] = field(default_factory=dict)

    def open(self) -> Backend:
        """Load the model, or ask the WebUI whether it is there."""
        if self.webui:
            return WebUI(self.webui, upscaler=self.upscaler)
        if self.cores:
            torch.set_num_threads(self.cores)
        given = {"device": self.device, "dtype": getattr(torch, self.dtype)}
        peers = {name: Path(path) for name, path in self.peers.items() if path}
        if self.model == POCKET:
            from ...pocket.model.pocket_model import Pocket

            return Local(Pocket(Path(self.weights) if self.weights else None, **given), peers)
        from ...sampling import checkpoints

        return Local(checkpoints.load(Path(self.model), **given), peers)
