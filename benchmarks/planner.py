"""The planner's memory prediction, if this version of the package has one."""

from typing import Any


def predicted_mb(num_users: int, num_items: int, num_pairs: int, settings: Any) -> float | None:
    """Return the peak memory that the package predicts for training, or None without a planner."""
    del num_users, num_items, num_pairs, settings
    return None
