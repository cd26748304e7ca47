"""`AspectScorer`: users and items of several latents each, scored aspect by aspect.

    y_ui = sum_a w*[a, i] link( mu_u,a . mu_i,a + tanh( f_u(mu_u,a) . f_i(mu_i,a) ) )

f is a linear layer and an activation, link the sigmoid or nothing. No inner product of two vectors gives this, so
scores are computed for a block of users at a time, and within it for a block of items; no (n, m) matrix stands.

A user outside the training data is what the user encoder makes of the history j in H, every item of it once:

    mu_u,a = M act( r sum_{j in H} w[a, j] t_j + c ) + e,     r = 1, or 1 / sqrt(|H|) for an encoder `by_root`
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.graph.bipartite import interaction_matrix
from rankformer.layers.aspects import ACTIVATIONS, divided_by_root, mix_aspects, tanh_products, weighted_bags
from rankformer.scoring.base import Scorer, check_tensor
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.histories import Histories

_ENTRIES_AT_ONCE = 2**18  # of an (A, b, block) array


class AspectTensors(NamedTuple):
    """The tensors of a scorer."""

    users: Tensor  # (A, n, d) mean latents
    items: Tensor  # (A, m, d) mean latents
    attention: Tensor  # (A, m) w*
    user_weight: Tensor  # (q, d) of f_u
    user_bias: Tensor  # (q,) of f_u
    item_weight: Tensor  # (q, d) of f_i
    item_bias: Tensor  # (q,) of f_i
    encoder_attention: Tensor  # (A, m) w
    encoder_table: Tensor  # (m, h) t
    encoder_bias: Tensor  # (h,) c
    mean_weight: Tensor  # (d, h) M
    mean_bias: Tensor  # (d,) e

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape that each tensor must have, by the sizes that some of them show."""
        if self.users.ndim != 3 or self.items.ndim != 3 or self.user_weight.ndim != 2 or self.encoder_table.ndim != 2:
            raise DataError("aspect latents need three dimensions, their decoder and encoder two")
        (a, n, d), m, q, h = self.users.shape, self.items.shape[1], len(self.user_weight), self.encoder_table.shape[1]
        shapes: dict[str, tuple[int, ...]] = {"users": (a, n, d), "items": (a, m, d), "attention": (a, m)}
        shapes |= {"user_weight": (q, d), "user_bias": (q,), "item_weight": (q, d), "item_bias": (q,)}
        shapes |= {"encoder_attention": (a, m), "encoder_table": (m, h), "encoder_bias": (h,)}
        return shapes | {"mean_weight": (d, h), "mean_bias": (d,)}


@dataclass(frozen=True, eq=False)
class AspectScorer(Scorer):
    """Mean latents, decoders and the user encoder."""

    kind: ClassVar[str] = "aspects"
    can_fold_in = can_compare_items = True
    parts: AspectTensors  # the tensors
    activation: str = "tanh"  # of encoder and decoders, a name in `ACTIVATIONS`
    bounded: bool = True  # whether the link is the sigmoid
    by_root: bool = False  # whether the encoder divides by the root of the history's size

    @property
    def num_users(self) -> int:
        return self.parts.users.shape[1]

    @property
    def num_items(self) -> int:
        return self.parts.items.shape[1]

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        del out
        parts = self.parts
        z = parts.users[:, users]
        decoded = self._activate(linear(z, parts.user_weight, parts.user_bias))
        scores = z.new_empty(len(users), self.num_items)
        size = max(64, _ENTRIES_AT_ONCE // max(1, len(z) * len(users)))
        for start in range(0, self.num_items, size):
            at = slice(start, start + size)
            logits = tanh_products(decoded, self._decoded_items[:, at]).baddbmm_(z, parts.items[:, at].mT)
            scores[:, at] = mix_aspects(logits.sigmoid_() if self.bounded else logits, parts.attention[:, at])
        return scores

    def for_histories(self, histories: Histories) -> "AspectScorer":
        shape = (histories.num_users, self.num_items)
        matrix = interaction_matrix(histories.users.numpy(), histories.items.numpy(), shape)
        columns, ptr = (torch.from_numpy(index).long() for index in (matrix.indices, matrix.indptr))
        parts = self.parts
        sums = weighted_bags(columns, ptr, parts.encoder_table, parts.encoder_attention)
        if self.by_root:
            sums = divided_by_root(sums, ptr)
        means = linear(self._activate(sums + parts.encoder_bias), parts.mean_weight, parts.mean_bias)
        touched = (ptr.diff() > 0).to(means.dtype)
        return replace(self, parts=parts._replace(users=means * touched[:, None]))

    def similarities(self, item: int) -> Tensor:
        """Return the cosine of each item with one, over all aspects; zero latents are similar to nothing."""
        vectors = self.parts.items.transpose(0, 1).flatten(1)  # (m, A d)
        return Embeddings(vectors[:0], vectors).similarities(item)

    def cpu(self) -> "AspectScorer":
        return replace(self, parts=AspectTensors(*(part.detach().cpu() for part in self.parts)))

    def tensors(self) -> dict[str, Tensor]:
        return self.parts._asdict()

    def metadata(self) -> dict[str, Any]:
        return {"kind": self.kind, "activation": self.activation, "bounded": self.bounded, "by_root": self.by_root}

    @classmethod
    def restore(
        cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], history: Interactions
    ) -> "AspectScorer":
        activation, bounded = metadata.get("activation"), metadata.get("bounded")
        by_root = metadata.get("by_root", False)  # runs of before there was a choice do not say it
        if activation not in ACTIVATIONS or not isinstance(bounded, bool) or not isinstance(by_root, bool):
            raise DataError(f"its scorer must say its link, and an activation among {', '.join(ACTIVATIONS)}")
        parts = AspectTensors(*(tensors[name] for name in AspectTensors._fields))
        for name, shape in parts.shapes().items():
            check_tensor(getattr(parts, name), name, shape)
        found, expected = (parts.users.shape[1], parts.items.shape[1]), (history.num_users, history.num_items)
        if found != expected:
            raise DataError(f"its scorer has {found} users and items, its history {expected}")
        return cls(parts, str(activation), bounded, by_root)

    @cached_property
    def _decoded_items(self) -> Tensor:
        """f_i of the items, (A, m, q)."""
        return self._activate(linear(self.parts.items, self.parts.item_weight, self.parts.item_bias))

    def _activate(self, values: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](values)
