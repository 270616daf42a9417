"""What is put on the modules of a model, and the state of the call that it reads."""
