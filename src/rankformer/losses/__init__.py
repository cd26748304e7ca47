"""Losses: each a function in its own file, chosen by the model."""
