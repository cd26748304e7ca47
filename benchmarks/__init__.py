"""Side-by-side measurements: `make bench` writes `benchmarks/RESULTS.md`."""
