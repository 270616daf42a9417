"""ToDo on a UNet of the ldm package (CompVis, Stability AI): one call without ToDo and one with it.

    python examples/ldm_model.py            # a small UNet with random weights, no download

Your own model goes in the same way: ``patched(model)`` takes a LatentDiffusion or its UNetModel.
Needs: pip install einops omegaconf tqdm && pip install --no-deps stable-diffusion-sdkit==2.1.5   # for ldm
"""

import torch
from ldm.modules.diffusionmodules.openaimodel import UNetModel

from todo_core import patched


def small_unet() -> UNetModel:
    """The layout of SD 1.5 with a tenth of its channels."""
    unet = UNetModel(
        image_size=32,
        in_channels=4,
        out_channels=4,
        model_channels=32,
        attention_resolutions=[4, 2, 1],
        num_res_blocks=2,
        channel_mult=[1, 2, 4, 4],
        num_heads=2,
        use_spatial_transformer=True,
        transformer_depth=1,
        context_dim=32,
        legacy=False,
    )
    for weight in unet.parameters():  # ldm sets its output layers to zero
        if weight.ndim > 1:
            torch.nn.init.xavier_normal_(weight)
    return unet.eval()


@torch.no_grad()
def main() -> None:
    """Call the UNet twice and compare the results."""
    torch.manual_seed(0)
    unet = small_unet()
    latent, timestep, text = torch.randn(1, 4, 64, 64), torch.tensor([500]), torch.randn(1, 77, 32)
    baseline = unet(latent, timestep, text)
    with patched(unet, factor_1=2, factor_2=2) as session:
        reduced = unet(latent, timestep, text)
    print(session.plan)
    error = (reduced - baseline).norm() / baseline.norm()
    print(f"relative difference: {error:.1%}")
    print("equal again after the block:", torch.equal(unet(latent, timestep, text), baseline))


if __name__ == "__main__":
    main()
