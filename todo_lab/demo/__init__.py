"""The demo: baseline, ToDo and plain steps side by side, in the terminal and on a page."""
