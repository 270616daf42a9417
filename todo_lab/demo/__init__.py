"""The demo: baseline, ToDo and ToMe side by side, in the terminal and on a page."""
