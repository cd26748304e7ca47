"""Layers over a `BipartiteGraph`: the Rankformer layer, its dense reference, and plain propagation."""

from rankformer.layers.rank_attention import RankAttention, rank_attention
from rankformer.layers.rank_attention_reference import rank_attention_reference
from rankformer.layers.rank_weights import RankWeights

__all__ = ["RankAttention", "RankWeights", "rank_attention", "rank_attention_reference"]
