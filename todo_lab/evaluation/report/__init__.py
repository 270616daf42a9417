"""The report: tables, plots and image grids from the rows of measurements."""
