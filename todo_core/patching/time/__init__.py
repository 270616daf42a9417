"""What is predicted: the formula, its pace, and what is remembered between steps."""
