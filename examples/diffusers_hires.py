"""A hires fix with diffusers: ToDo acts in the second pass only, so the composition stays.

    python examples/diffusers_hires.py PATH_OR_NAME_OF_AN_SD_1.5_MODEL
    python examples/diffusers_hires.py --tiny       # random weights and no download: a test, not a picture

Needs: pip install ".[diffusers]"
"""

import argparse

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionImg2ImgPipeline, StableDiffusionPipeline
from diffusers import UNet2DConditionModel as UNet
from torch.nn.functional import interpolate

from todo_core import patched

DEVICE, DTYPE = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)


def tiny_pipeline() -> StableDiffusionPipeline:
    """An SD 1.5 layout with few channels. It has no text encoder, so it takes embeddings instead of a prompt."""
    width = {"block_out_channels": (32, 64, 64, 64), "cross_attention_dim": 32, "attention_head_dim": 4}
    unet = UNet(sample_size=64, norm_num_groups=8, **width)
    down, up = ("DownEncoderBlock2D",) * 4, ("UpDecoderBlock2D",) * 4
    vae = AutoencoderKL(down_block_types=down, up_block_types=up, block_out_channels=(8,) * 4, norm_num_groups=8)
    scheduler = DDIMScheduler(steps_offset=1, clip_sample=False)
    absent = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    return StableDiffusionPipeline(vae=vae, unet=unet, scheduler=scheduler, requires_safety_checker=False, **absent)


def main() -> None:
    """Make one picture in two passes."""
    options = argparse.ArgumentParser()
    model = options.add_mutually_exclusive_group(required=True)
    model.add_argument("model", nargs="?", help="a folder, or a name on the Hugging Face Hub")
    model.add_argument("--tiny", action="store_true")
    options.add_argument("--prompt", default="a lighthouse at dusk")
    given = options.parse_args()
    if given.tiny:
        pipe, size, steps = tiny_pipeline(), 128, 2
        text = {"prompt_embeds": torch.randn(1, 77, 32), "negative_prompt_embeds": torch.randn(1, 77, 32)}
    else:
        pipe, size, steps = StableDiffusionPipeline.from_pretrained(given.model, torch_dtype=DTYPE).to(DEVICE), 512, 20
        text = {"prompt": given.prompt}

    latents = pipe(**text, height=size, width=size, num_inference_steps=steps, output_type="latent").images
    latents = interpolate(latents, scale_factor=2, mode="bicubic", antialias=True)
    hires = StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
    with patched(hires, factor_1=2) as session:  # factor 2 keeps a quarter of the keys and values
        image = hires(**text, image=latents, strength=0.5, num_inference_steps=2 * steps).images[0]
    image.save("hires.png")
    print(session.plan)


if __name__ == "__main__":
    main()
