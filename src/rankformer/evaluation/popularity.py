"""Popularity: the baseline with a known answer, which proves an evaluator before any model is trusted."""

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.scoring.embeddings import Embeddings


def popularity_embeddings(train: Interactions) -> Embeddings:
    """Return vectors of width 1 that score every item by its number of lines in `train`, alike for all users.

    Repeated lines count each time; equal counts rank by the lower item index, as everywhere. Counts are exact in
    float32 up to 2^24 lines per item.
    """
    counts = np.bincount(train.items, minlength=train.num_items).astype(np.float32)
    return Embeddings(torch.ones(train.num_users, 1), torch.from_numpy(counts)[:, None])
