"""A study: the trials of the experiments, and the store of their results."""
