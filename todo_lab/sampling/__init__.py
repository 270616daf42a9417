"""txt2img with a hires pass on the pocket model or a checkpoint."""

TRAILING = "Trailing"  # diffusers' own, which rounds otherwise than Simple
AUTOMATIC = "Automatic"
SCHEDULES = (
    AUTOMATIC,
    "Karras",
    "Exponential",
    "SGM Uniform",
    "Simple",
    "Normal",
    "DDIM",
    "Beta",
    "KL Optimal",
    "Align Your Steps",
    TRAILING,
)
SAMPLERS = {  # with what A1111 means by Automatic; UniPC has a schedule of its own
    "DDIM": "DDIM",
    "Euler": "Normal",
    "Euler a": "Normal",
    "Heun": "Normal",
    "LMS": "Normal",
    "DPM++ 2M": "Karras",
    "DPM++ 2M SDE": "Exponential",
    "DEIS": "Normal",
    "UniPC": AUTOMATIC,
}
