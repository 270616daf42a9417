"""From a list of prompts and settings to rows of measurements."""
