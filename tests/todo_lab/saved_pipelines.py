"""Folders of small random pipelines, as diffusers saves them, in the layouts of SD 1 and SDXL."""

from diffusers import DDIMScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from tests.models import TEXT_WIDTH, diffusers_sdxl, diffusers_unet, randomised, small_vae
from todo_lab.sampling.clip_tokenizer import make_tokenizer

TOKENS = {"vocab_size": 49408, "bos_token_id": 49406, "eos_token_id": 49407}


def text_model(layers, kind=CLIPTextModel, **changes):
    sizes = {"hidden_size": TEXT_WIDTH, "intermediate_size": 48, "num_attention_heads": 1, "hidden_act": "quick_gelu"}
    return randomised(kind(CLIPTextConfig(**{**TOKENS, **sizes, "num_hidden_layers": layers, **changes})))


def save_sd1(path, side=512):
    """Trained at `side` pixels. It predicts v."""
    StableDiffusionPipeline(
        unet=diffusers_unet(sample_size=side // 8),
        text_encoder=text_model(1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
        **_common(path),
    ).save_pretrained(path)
    return path


def save_sdxl(path, side=1024):
    """Trained at `side` pixels. The UNet takes the text of both encoders side by side, and the second one's pooled."""
    unet = diffusers_sdxl().copy().unet
    unet.register_to_config(sample_size=side // 8)
    half = {"hidden_size": TEXT_WIDTH // 2}
    StableDiffusionXLPipeline(
        unet=unet,
        text_encoder=text_model(2, **half),
        text_encoder_2=text_model(2, CLIPTextModelWithProjection, projection_dim=TEXT_WIDTH, **half),
        tokenizer_2=make_tokenizer(path.parent / "tokenizer"),
        add_watermarker=False,
        **_common(path),
    ).save_pretrained(path)
    return path


def _common(path):
    return {
        "vae": randomised(small_vae()),
        "tokenizer": make_tokenizer(path.parent / "tokenizer"),
        "scheduler": DDIMScheduler(prediction_type="v_prediction", steps_offset=1, clip_sample=False),
    }
