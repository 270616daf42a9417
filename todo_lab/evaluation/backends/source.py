"""A description of the model that can be sent to other machines, which then load it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...pocket.model.pocket_model import Pocket
from ...sampling import checkpoints
from ...sampling.passes import LatentModel
from .local import Local

POCKET = "pocket"


@dataclass(frozen=True)
class Source:
    """Where images come from: ``model`` is "pocket", a checkpoint or a diffusers folder.

    ``cores`` limits torch's threads; None keeps torch's choice. ``weights`` replace those of the pocket model. With
    ``counts`` the multiplications of each hires pass are counted.
    """

    model: str = POCKET
    device: str = "cpu"
    dtype: str = "float32"
    cores: int | None = None
    weights: str | None = None
    counts: bool = False
    peers: dict[str, str] = field(default_factory=dict, hash=False)

    def open(self) -> Local:
        """Load the model."""
        if self.cores:
            torch.set_num_threads(self.cores)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 is float32
        options: dict[str, Any] = {"device": self.device, "dtype": getattr(torch, self.dtype)}
        if self.model == POCKET:
            model: LatentModel = Pocket(Path(self.weights) if self.weights else None, **options)
        else:
            model = checkpoints.load(Path(self.model), **options)
        peers = {name: Path(path) for name, path in self.peers.items() if path}
        return Local(model, peers, counts=self.counts)
