"""What the page shows of the extension: the accordion, its live line, the settings page and the axes."""
