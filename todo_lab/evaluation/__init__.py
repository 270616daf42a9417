"""The evaluation: time and image difference of reduced hires passes, relative to the baseline."""
