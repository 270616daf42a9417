"""How far a reduced image is from the unreduced one, and how much faster it came."""
