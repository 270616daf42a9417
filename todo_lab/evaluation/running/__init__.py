"""The run: from prompts and settings to rows of measurements."""
