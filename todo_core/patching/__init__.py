"""From settings and a model to hooks: the plan of a pass, the session that carries it out, and the record of it."""
