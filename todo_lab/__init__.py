"""The laboratory: a small trained model, a demo and an evaluation. Nothing in ``todo_core`` imports it."""
