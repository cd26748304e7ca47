"""What there is to know about data before training on it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions, Parts

QUANTILES = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "99%": 0.99, "max": 1.0}


def summary_of(name: str, parts: "Parts") -> dict[str, Any]:
    """Return sizes, repeats, degrees, overlaps, cold ids and the fingerprint of a split, as JSON can hold them."""
    keys = {part: _distinct_pairs(getattr(parts, part)) for part in parts._fields}
    distinct = len(keys["train"] | keys["valid"] | keys["test"])
    users, items = parts.train.num_users, parts.train.num_items
    return {
        "name": name,
        "users": users,
        "items": items,
        "pairs": sum(len(part) for part in parts),
        "distinct_pairs": distinct,
        "density": distinct / (users * items) if users and items else 0.0,
        "times": parts.train.times is not None,
        "weights": parts.train.weights is not None,
        "titles": parts.train.item_titles is not None,
        "parts": {part: _part_summary(getattr(parts, part), keys[part]) for part in parts._fields},
        "train_pairs_per_user": _quantiles(parts.train.users),
        "train_pairs_per_item": _quantiles(parts.train.items),
        "test_pairs_also_in_train": len(keys["test"] & keys["train"]),
        "valid_pairs_also_in_train": len(keys["valid"] & keys["train"]),
        "cold": {part: _cold(getattr(parts, part), parts.train) for part in ("valid", "test")},
        "fingerprint": parts.fingerprint,
    }


def _distinct_pairs(part: "Interactions") -> set[int]:
    import numpy as np

    keys = part.users.astype(np.int64) * max(1, part.num_items) + part.items
    return set(np.unique(keys).tolist())


def _part_summary(part: "Interactions", keys: set[int]) -> dict[str, int]:
    import numpy as np

    return {
        "pairs": len(part),
        "repeated": len(part) - len(keys),
        "users": len(np.unique(part.users)),
        "items": len(np.unique(part.items)),
    }


def _quantiles(indices: Any) -> dict[str, int]:
    """Return quantiles of how often each index that occurs does so; empty when none does."""
    import numpy as np

    counts = np.unique(indices, return_counts=True)[1]
    if not len(counts):
        return {}
    return {label: int(np.quantile(counts, share, method="lower")) for label, share in QUANTILES.items()}


def _cold(part: "Interactions", train: "Interactions") -> dict[str, int]:
    """Return how many users and items of a part have no training pair."""
    import numpy as np

    return {
        "users": len(np.setdiff1d(part.users, train.users)),
        "items": len(np.setdiff1d(part.items, train.items)),
    }
