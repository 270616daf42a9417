"""One generation: its request, passes, infotext and status lines."""
