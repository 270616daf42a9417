"""The demo: a baseline and a reduced hires pass side by side, in the terminal and on a page."""
