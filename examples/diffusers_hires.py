"""A hires fix with diffusers, for SD 1.5 and SDXL: ToDo acts in the second pass only, so the composition stays.

    python examples/diffusers_hires.py PATH_OR_NAME_OF_A_MODEL
    python examples/diffusers_hires.py --tiny sdxl       # random weights and no download: a test, not a picture

Needs: pip install ".[diffusers]"
"""

import argparse
from typing import Any

import diffusers
import torch
from torch.nn.functional import interpolate

from todo_core import patched

DEVICE, DTYPE = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)


def tiny_pipeline(kind: str) -> tuple[Any, dict[str, Any]]:
    """A pipeline with few channels, trained at 128 px, and what it gets for a prompt: it has no text encoder."""
    layout = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    vae = diffusers.AutoencoderKL(**layout, block_out_channels=(8,) * 4, norm_num_groups=8)
    scheduler = diffusers.DDIMScheduler(steps_offset=1, clip_sample=False)
    parts = {"vae": vae, "scheduler": scheduler, "text_encoder": None, "tokenizer": None}
    width = {"sample_size": 16, "norm_num_groups": 8, "cross_attention_dim": 32, "attention_head_dim": 4}
    text = {name: torch.randn(1, 77, 32) for name in ("prompt_embeds", "negative_prompt_embeds")}
    if kind == "sd1":
        unet = diffusers.UNet2DConditionModel(block_out_channels=(32, 64, 64, 64), **width)
        parts |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
        return diffusers.StableDiffusionPipeline(unet=unet, **parts), text
    blocks = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D")}
    blocks |= {"up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D")}
    sizes = {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 6 * 8 + 32}
    width |= {"transformer_layers_per_block": (1, 1, 2), "addition_embed_type": "text_time"}
    unet = diffusers.UNet2DConditionModel(block_out_channels=(32, 64, 64), **width, **blocks, **sizes)
    text |= {name: torch.randn(1, 32) for name in ("pooled_prompt_embeds", "negative_pooled_prompt_embeds")}
    return diffusers.StableDiffusionXLPipeline(unet=unet, text_encoder_2=None, tokenizer_2=None, **parts), text


options = argparse.ArgumentParser()
model = options.add_mutually_exclusive_group(required=True)
model.add_argument("model", nargs="?", help="a folder, or a name on the Hugging Face Hub")
model.add_argument("--tiny", choices=["sd1", "sdxl"])
given = options.parse_args()
if given.tiny:
    pipe, prompt = tiny_pipeline(given.tiny)
else:
    pipe = diffusers.AutoPipelineForText2Image.from_pretrained(given.model, torch_dtype=DTYPE).to(DEVICE)
    prompt = {"prompt": "a lighthouse at dusk"}

latents = pipe(**prompt, num_inference_steps=4 if given.tiny else 20, output_type="latent").images
latents = interpolate(latents, scale_factor=2, mode="bicubic", antialias=True)
hires = diffusers.AutoPipelineForImage2Image.from_pipe(pipe)
with patched(hires) as session:  # half of the steps run
    image = hires(**prompt, image=latents, strength=0.5, num_inference_steps=8 if given.tiny else 40).images[0]
image.save("hires.png")
print(session.plan, session.record, sep="\n")
