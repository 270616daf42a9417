"""The model of the moment."""

sd_model = None
