"""The demo: a comparison of the whole and the reduced hires pass, in the terminal and on a page."""
