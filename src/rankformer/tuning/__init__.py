"""The search for good settings: what may vary, the trials, and what came of them."""
