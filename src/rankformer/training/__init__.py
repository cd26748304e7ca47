"""The only training loop, its settings and the networks it trains."""
