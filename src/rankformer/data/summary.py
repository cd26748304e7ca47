"""What there is to know about data before training on it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankformer.data.cleaning import interaction_codes
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts

FEWEST_TEST_USERS = 100
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


def split_warnings(parts: Parts) -> list[str]:
    """Return what makes the test part say less than it seems to, a sentence each; none where there is no test part."""
    train, _, test = parts
    if not len(test):
        return []
    users, trained = np.unique(test.users), np.unique(interaction_codes(train.users, train.items, train.num_items))
    both = int(np.isin(interaction_codes(test.users, test.items, test.num_items), trained).sum())
    lonely = int((~np.isin(test.items, train.items)).sum())
    cold = len(np.setdiff1d(users, train.users))
    of_all = f"of {len(test):,} test interactions"
    found = {
        f"{both:,} {of_all} are also in the training part: lists leave them out, so they can never be hit "
        "(--duplicates merge keeps one of each)": both,
        f"{lonely:,} {of_all} are on items without a training interaction, which hardly a list will hold": lonely,
        f"{cold:,} of {len(users):,} test users have no training interaction: popularity answers for them": cold,
        f"the test part has {len(users):,} users, too few to tell two models apart": len(users) < FEWEST_TEST_USERS,
    }
    return [warning for warning, applies in found.items() if applies]


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
