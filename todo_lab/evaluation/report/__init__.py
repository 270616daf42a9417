"""From rows of measurements to a report with plots and image grids."""
