"""`ItemRules`: what options ask of items, by their attributes."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from rankformer.errors import FilterError
from rankformer.scoring.filters import ListRules, where_mask
from rankformer.scoring.options import RankingOptions

_CACHED_FILTERS = 64


class ItemRules:
    """The rules of lists over the items of a catalogue; the latest expressions are kept with the items they mean."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        """Take what expressions may name: arrays of one value per item."""
        self.columns = columns
        self._mask_of = lru_cache(_CACHED_FILTERS)(self._find_mask)
        self._codes_of = lru_cache(_CACHED_FILTERS)(self._find_codes)

    def __reduce__(self) -> tuple[type["ItemRules"], tuple[Mapping[str, pa.Array]]]:
        """Return how a copy is made, for libraries that pickle models: without what is kept."""
        return ItemRules, (self.columns,)

    def of(self, options: RankingOptions, size: int) -> ListRules | None:
        """Return what options ask of the first `size` items of the catalogue, None where that is nothing.

        Raises:
            ConfigError: an expression cannot be read, or an attribute is not known.
        """
        if not (options.where or options.at_most or options.boost):
            return None
        masks = [self._mask_of(text)[:size] for text in options.where]
        allowed = torch.stack(masks).all(0) if masks else None
        boost = torch.zeros(size) if options.boost else None
        for text, weight in options.boost:
            assert boost is not None
            boost += weight * self._mask_of(text)[:size]
        return ListRules(allowed, boost, tuple((self._codes_of(name)[:size], most) for name, most in options.at_most))

    def _find_mask(self, text: str) -> Tensor:
        """Return the items that meet an expression."""
        return torch.from_numpy(where_mask(text, self.columns).copy())

    def _find_codes(self, name: str) -> Tensor:
        """Return the value of an attribute as a number for each item, -1 where it is unknown."""
        column = self.columns.get(name)
        if column is None or pa.types.is_list(column.type):
            usable = [each for each, values in self.columns.items() if not pa.types.is_list(values.type)]
            found = "no such attribute" if column is None else "an item may have several of it"
            raise FilterError(f"at_most {name!r}: {found}; expected one of {', '.join(usable)}")
        codes = pc.fill_null(column.dictionary_encode().indices, -1)
        return torch.from_numpy(codes.to_numpy(zero_copy_only=False).astype(np.int64))
