"""The laboratory: a small trained model, a demo and an evaluation. ``todo_core`` never imports it."""

from .python_version import check_python

check_python()  # first: older Pythons cannot read the other modules
