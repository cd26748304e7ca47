"""The service: a run folder behind HTTP. Needs the `serve` extra; nothing else in the package imports it."""
