"""The prompts of the evaluation."""
