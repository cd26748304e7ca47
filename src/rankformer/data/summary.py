"""What there is to know about data before training on it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankformer.data.cleaning import interaction_codes
from rankformer.data.interactions import Interactions, Parts

QUANTILES = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "99%": 0.99, "max": 1.0}


def summary_of(name: str, parts: Parts) -> dict[str, Any]:
    """Return sizes, duplicates, degrees, overlaps, cold ids and the fingerprint of a split, as JSON can hold them."""
    train, valid, test = parts
    users, items = train.num_users, train.num_items
    codes = [np.unique(interaction_codes(part.users, part.items, items)) for part in parts]
    distinct = len(np.unique(np.concatenate(codes)))
    return {
        "name": name,
        "users": users,
        "items": items,
        "interactions": sum(len(part) for part in parts),
        "distinct_interactions": distinct,
        "density": distinct / (users * items) if users and items else 0.0,
        "times": train.times is not None,
        "weights": train.confidence is not None,
        "titles": train.item_titles is not None,
        "parts": {
            name: {
                "interactions": len(part),
                "duplicates": len(part) - len(own),
                "users": len(np.unique(part.users)),
                "items": len(np.unique(part.items)),
            }
            for name, part, own in zip(parts._fields, parts, codes, strict=True)
        },
        "train_interactions_per_user": _quantiles(train.users),
        "train_interactions_per_item": _quantiles(train.items),
        "test_interactions_also_in_train": len(np.intersect1d(codes[2], codes[0])),
        "valid_interactions_also_in_train": len(np.intersect1d(codes[1], codes[0])),
        "cold": {"valid": _cold(valid, train), "test": _cold(test, train)},
        "fingerprint": parts.fingerprint,
    }


def _quantiles(indices: NDArray[np.int32]) -> dict[str, int]:
    """Return quantiles of how often each index that occurs does so; empty when none does."""
    counts = np.unique(indices, return_counts=True)[1]
    if not len(counts):
        return {}
    return {label: int(np.quantile(counts, fraction, method="lower")) for label, fraction in QUANTILES.items()}


def _cold(part: Interactions, train: Interactions) -> dict[str, int]:
    """Return how many users and items of a part have no training interaction."""
    return {
        "users": len(np.setdiff1d(part.users, train.users)),
        "items": len(np.setdiff1d(part.items, train.items)),
    }
