"""A run and its folder: log, checkpoint, manifest, configuration file, and the sequence fit, evaluate, save."""
