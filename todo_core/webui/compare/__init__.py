"""The script ToDo compare: the same seeds without and with ToDo."""
