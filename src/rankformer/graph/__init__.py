"""The bipartite training graph, its two sparse primitives, and negative sampling on it."""
