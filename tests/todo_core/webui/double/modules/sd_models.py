"""What is loaded, without loading anything."""

from types import SimpleNamespace

model_data = SimpleNamespace(sd_model=None)
