"""How good ranked lists are: metrics, the evaluator that states its protocol, and the popularity baseline."""
