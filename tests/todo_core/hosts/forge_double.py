"""A model of the Forge family in small: ldm's UNet, whose blocks call the patches of a patcher as the real ones do.

The order and the arguments are those of ``BasicTransformerBlock._forward`` in Forge, Forge Classic and reForge.
"""

import copy
from types import SimpleNamespace

import torch
from ldm.modules.attention import BasicTransformerBlock, CrossAttention
from torch import nn

from tests.models import words


class Attention(CrossAttention):
    """Takes the values beside the keys."""

    def forward(self, x, context=None, value=None, mask=None, transformer_options=None):
        context = x if context is None else context
        projected = self.to_q(x), self.to_k(context), self.to_v(context if value is None else value)
        return self.to_out(attend(*projected, {"n_heads": self.heads}))


def attend(q, k, v, options):
    """Attention of projected tokens, as a replacement of it computes it; ``to_out`` comes after."""
    q, k, v = (tensor.unflatten(-1, (options["n_heads"], -1)).transpose(1, 2) for tensor in (q, k, v))
    return (torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v).transpose(1, 2).flatten(2)


class Block(BasicTransformerBlock):
    """Calls the patches of the running call; ``call`` has its options."""

    def forward(self, x, context=None):
        options = {**self.call.options, "n_heads": self.attn1.heads}
        patches, replacements = options.pop("patches", {}), options.pop("patches_replace", {}).get("attn1", {})
        n, keys, values = self.norm1(x), None, None
        if "attn1_patch" in patches:
            keys = values = n
            for patch in patches["attn1_patch"]:
                n, keys, values = patch(n, keys, values, options)
        if options.get("block") in replacements:
            keys, values = (n, n) if keys is None else (keys, values)
            projected = self.attn1.to_q(n), self.attn1.to_k(keys), self.attn1.to_v(values)
            n = self.attn1.to_out(replacements[options.get("block")](*projected, options))
        else:
            n = self.attn1(n, context=keys, value=values, transformer_options=options)
        for patch in patches.get("attn1_output_patch", ()):
            n = patch(n, options)
        x = n + x
        x = self.attn2(self.norm2(x), context=context, value=None, transformer_options=options) + x
        return self.ff(self.norm3(x)) + x


def let_patch(unet, call):
    """From now on, the UNet's blocks call the patches in ``call.options``."""
    for module in unet.modules():
        if isinstance(module, BasicTransformerBlock):
            module.__class__, module.call = Block, call
        elif isinstance(module, CrossAttention):
            module.__class__ = Attention


class Patcher:
    """The patcher of a UNet, as far as extensions use it."""

    def __init__(self, model):
        self.model = model
        self.model_options = {"transformer_options": {}}

    def clone(self):
        clone = type(self)(self.model)
        clone.model_options = copy.deepcopy(self.model_options)
        return clone

    def set_model_patch(self, patch, name):
        to = self.model_options["transformer_options"]
        to.setdefault("patches", {})
        to["patches"][name] = [*to["patches"].get(name, []), patch]


class Engine:
    """The WebUI's ``sd_model``. Calling it is one call of the UNet, with the options that the patcher has then."""

    def __init__(self, unet, **inner):
        self.unet, self.call = copy.deepcopy(unet), SimpleNamespace(options={})
        model = nn.Module()
        model.diffusion_model = self.unet
        for name, value in inner.items():
            setattr(model, name, value)
        let_patch(self.unet, self.call)
        self.forge_objects = SimpleNamespace(unet=Patcher(model))
        self.model, self.parameters = SimpleNamespace(diffusion_model=self.run), self.unet.parameters

    @property
    def options(self):
        return self.forge_objects.unet.model_options

    @torch.no_grad()
    def run(self, x, timesteps, context):
        self.call.options = self.options["transformer_options"].copy()
        try:
            return self.unet(x, timesteps, context=context)
        finally:
            self.call.options = {}

    def __call__(self, latent):
        return self.run(latent, torch.full((len(latent),), 500.0), [words(len(latent))] * 2)
