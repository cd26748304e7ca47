"""Which terms the attention weights Omega hold: Eq. 6, the paper's ablations, and Table 1's special cases."""

from dataclasses import dataclass
from typing import Literal

from rankformer.errors import ConfigError

Negatives = Literal["push", "none", "pull"]
Curvature = Literal[-1, 0, 1]


@dataclass(frozen=True)
class RankWeights:
    """The terms of Omega; the default is Eq. 6.

    With s = x_u . x_i the similarity of unit rows, d_u the positives and e_u = m - d_u the negatives of u:

        Omega+_ui = (s - b-_u + alpha) / d_u            on the user's own items
        Omega-_ui = (s - b+_u - alpha) / e_u            on all others, `negatives="push"`
                  = 0                                   `negatives="none"`
                  = s / d_u                             `negatives="pull"`: the plain Transformer of Table 1

    With a curvature kappa, kappa s stands for s, in b+ and b- too. Eq. 6 climbs mu^2 + alpha mu in the margin mu, which
    is convex, where the second-order expansion of BPR, mu/2 - mu^2/8, is concave: kappa = -1 has its sign.

    Attributes:
        similarity: whether s is in the weights.
        benchmark: whether b+ and b- (Eq. 7) are.
        curvature: kappa, the sign of the similarity: 1 (the paper), 0 (no similarity), -1 (as BPR's expansion).
        alpha: the offset. From 2 on no absolute value in Eq. 8 is active and the linear form is exact; see
            `rank_attention` for what is approximated below.
        negatives: effect of the items outside the user's history.
        normalize: whether rows are divided by C (Eq. 8).
        floor: smallest value of the negative sums in C where the linear form estimates them. Chosen on validation
            (experiments/LOG.md): smaller sums, as alpha = 0 and random embeddings give, are too noisy to divide by.
    """

    similarity: bool = True
    benchmark: bool = True
    alpha: float = 2.0
    negatives: Negatives = "push"
    normalize: bool = True
    floor: float = 1.0
    curvature: Curvature = 1

    def __post_init__(self) -> None:
        if self.negatives not in ("push", "none", "pull"):
            raise ConfigError(f"negatives={self.negatives!r}: expected one of push, none, pull")
        if self.curvature not in (-1, 0, 1):
            raise ConfigError(f"curvature={self.curvature!r}: expected one of -1, 0, 1")
        if not 0 <= self.alpha < float("inf"):
            raise ConfigError(f"alpha={self.alpha}: the offset must be a finite number of at least 0")
        if self.negatives == "pull" and (self.benchmark or self.alpha):
            raise ConfigError("negatives='pull' is s/d_u on every pair; it needs benchmark=False and alpha=0")
        if self.benchmark and not self.similarity:
            raise ConfigError("the benchmark is a mean similarity: similarity=False needs benchmark=False")
        if not self.floor > 0:
            raise ConfigError(f"floor={self.floor}: must be above 0, it keeps the division by C safe")

    @property
    def exact_normalizer(self) -> bool:
        """Whether the linear form computes Eq. 8 exactly (otherwise its negative sums are clamped estimates)."""
        return not self.normalize or self.negatives == "none" or (self.negatives == "push" and self.alpha >= 2)

    @classmethod
    def lightgcn(cls) -> "RankWeights":
        """Table 1, LightGCN: Omega+ = 1/d_u, Omega- = 0."""
        return cls(similarity=False, benchmark=False, alpha=1.0, negatives="none")

    @classmethod
    def gat(cls) -> "RankWeights":
        """Table 1, GAT: Omega+ = s/d_u, Omega- = 0."""
        return cls(benchmark=False, alpha=0.0, negatives="none")

    @classmethod
    def transformer(cls) -> "RankWeights":
        """Table 1, Transformer: Omega = s/d_u on every pair."""
        return cls(benchmark=False, alpha=0.0, negatives="pull")
