"""What is reduced: the plan of a level, and the methods that it can have."""
