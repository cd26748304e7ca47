"""One file per method, on one contract."""
