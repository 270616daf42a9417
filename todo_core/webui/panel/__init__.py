"""The extension on the page: the accordion, its estimate line, the settings page and the axes."""
