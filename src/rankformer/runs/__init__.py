"""A run and its folder: training log, checkpoint, manifest, configuration, and the sequence fit, evaluate, save."""
