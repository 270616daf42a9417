"""The shape of sd-webui-controlnet's ControlNet: the first half of a UNet, with outputs of its own."""

import copy
from types import SimpleNamespace

from ldm.modules.diffusionmodules.util import timestep_embedding
from torch import nn

from tests.models import randomised


class ControlNet(nn.Module):
    """Made of a UNet; it is called by keywords, as that extension does."""

    def __init__(self, unet):
        super().__init__()
        for part in ("time_embed", "input_blocks", "middle_block"):
            setattr(self, part, copy.deepcopy(getattr(unet, part)))
        self.model_channels = unet.model_channels
        widths = [block[0].out_channels for block in self.input_blocks]
        self.zero_convs = nn.ModuleList([nn.Conv2d(width, width, 1) for width in widths])
        randomised(self.zero_convs)

    def forward(self, x, hint, timesteps, context):
        emb = self.time_embed(timestep_embedding(timesteps, self.model_channels))
        h, outputs = x, []
        for block, convolution in zip(self.input_blocks, self.zero_convs, strict=True):
            h = block(h, emb, context)
            outputs.append(convolution(h))
        return [*outputs, self.middle_block(h, emb, context)]


def script_with(*models):
    """The script of that extension while it steers a generation with these models."""
    units = [SimpleNamespace(control_model=SimpleNamespace(control_model=model)) for model in models]
    return SimpleNamespace(latest_network=SimpleNamespace(control_params=units))
