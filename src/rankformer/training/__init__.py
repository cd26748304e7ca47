"""One loss file, one training loop, one checkpoint format, for every model trained by gradient."""
