"""From tomesd to this library: one import changes, then one call gives ToDo.

    python examples/from_tomesd.py          # a small UNet with random weights, no download

Needs: pip install ".[diffusers]" tomesd
"""

import tomesd as original
import torch
from diffusers import UNet2DConditionModel

from todo_core import Settings, apply_patch, remove_patch, tomesd


@torch.no_grad()
def main() -> None:
    """Compare tomesd, the same call here, and ToDo with the unpatched model."""
    torch.manual_seed(0)
    model = UNet2DConditionModel(
        block_out_channels=(32, 64, 64, 64), norm_num_groups=8, cross_attention_dim=32, attention_head_dim=4
    ).eval()  # SD 1.5's layout; a pipeline goes in the same way
    latent, text = torch.randn(1, 4, 64, 64), torch.randn(1, 77, 32)

    def call() -> torch.Tensor:
        return model(latent, 500, encoder_hidden_states=text).sample

    baseline = call()

    # Before: import tomesd
    original.apply_patch(model, ratio=0.5, use_rand=False)
    before = call()
    original.remove_patch(model)

    # After: from todo_core import tomesd
    tomesd.apply_patch(model, ratio=0.5, use_rand=False)
    after = call()
    tomesd.remove_patch(model)
    print("the same result as tomesd:", torch.allclose(before, after, atol=1e-5))

    # ToDo keeps every query. It is usually closer to the baseline at the same speed.
    session = apply_patch(model, Settings(factor_1=2))
    todo = call()
    remove_patch(model)
    print(session.plan)
    for name, result in {"ToMe": after, "ToDo": todo}.items():
        print(f"{name}: relative difference {(result - baseline).norm() / baseline.norm():.1%}")


if __name__ == "__main__":
    main()
