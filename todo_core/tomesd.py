"""tomesd's two functions on this library: ``from todo_core import tomesd`` instead of ``import tomesd``.

With ``use_rand=False`` the results are those of tomesd, on every grid that sx and sy divide. On other grids tomesd
crashes or misplaces tokens; here they are exact. With ``use_rand=True`` the destinations come from a seed, the step and
the block, so that a run can be repeated; tomesd takes them from torch's global generator.
"""

from __future__ import annotations

from typing import Any

from .errors import SettingsError
from .hosts import detect
from .patching import patch
from .settings import Settings

remove_patch = patch.remove_patch


def apply_patch(
    model: Any,
    ratio: float = 0.5,
    max_downsample: int = 1,
    sx: int = 2,
    sy: int = 2,
    use_rand: bool = True,
    merge_attn: bool = True,
    merge_crossattn: bool = False,
    merge_mlp: bool = False,
) -> Any:
    """Merge tokens in ``model``, as ``tomesd.apply_patch`` does; returns ``model``.

    ``max_downsample`` is 1 or 2, counted from the latent, as in tomesd. SDXL has its first attention at 2, so 1 merges
    nothing there. 4 and 8 raise SettingsError, and so does a ``ratio`` above 1 - 1/(sx*sy), which tomesd would lower.
    """
    if max_downsample not in (1, 2):
        raise SettingsError("max_downsample", max_downsample, "1 or 2")
    levels = max_downsample - detect(model).depth  # 1 or 2, as many as it names
    settings = Settings(
        method="similarity",
        target="all",
        ratio_1=ratio if levels >= 1 else 0.0,
        ratio_2=ratio if levels >= 2 else 0.0,
        sx=sx,
        sy=sy,
        random=use_rand,
        attn=merge_attn,
        crossattn=merge_crossattn,
        mlp=merge_mlp,
        interval=1,
        start=0,
        end=1,
    )
    patch.apply_patch(model, settings)
    return model
