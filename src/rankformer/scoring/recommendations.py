"""`Recommendations`: ranked lists as one table that goes to whatever the caller works in."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rankformer.data.id_map import IdMap
from rankformer.errors import ConfigError
from rankformer.scoring.top_k import TopK

if TYPE_CHECKING:
    import pandas
    import polars

_SHOWN_ROWS = 10


@dataclass(frozen=True, eq=False, repr=False)
class Recommendations:
    """Ranked lists, one row per item: whom it is for, the item, its score, its rank from 1, and a title if known.

    Attributes:
        table: columns `user_id, item_id, score, rank[, title]`, or `item_id, similar_item_id, ...` for similar items.
        unknown_items: for lists from histories, the raw ids of each that the model does not know and ignored.
        fallbacks: for lists from histories, whom popularity answered because the model knows nothing of theirs.
    """

    table: pa.Table
    unknown_items: dict[Any, list[Any]] = field(default_factory=dict)
    fallbacks: list[Any] = field(default_factory=list)

    @classmethod
    def from_lists(
        cls, names: tuple[str, str], asked_for: pa.Array, lists: TopK, item_ids: IdMap, titles: pa.Array | None
    ) -> "Recommendations":
        """Return the table of the given lists, missing items left out.

        Args:
            names: what to call the column of the asker and that of the answer.
            asked_for: (b,) raw id each list is for.
            lists: (b, k) item indices and scores.
            item_ids: raw ids of the items.
            titles: a string per item index, or None for a table without titles.
        """
        items: NDArray[np.int64] = lists.items.cpu().numpy()
        kept = items >= 0
        rows, positions = np.nonzero(kept)
        chosen = pa.array(items[kept])
        columns = {
            names[0]: asked_for.take(pa.array(rows)),
            names[1]: item_ids.ids.take(chosen),
            "score": pa.array(lists.scores.float().cpu().numpy()[kept]),
            "rank": pa.array((positions + 1).astype(np.int32)),
        }
        if titles is not None:
            columns["title"] = titles.take(chosen)
        return cls(pa.table(columns))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_arrow(self) -> pa.Table:
        """Return the pyarrow table itself."""
        return self.table

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas frame; needs pandas to be installed."""
        try:
            return self.table.to_pandas()
        except ImportError as error:
            raise ConfigError("to_pandas needs the package pandas, which is not installed") from error

    def to_polars(self) -> "polars.DataFrame":
        """Return a polars frame; needs polars to be installed."""
        try:
            import polars
        except ImportError as error:
            raise ConfigError("to_polars needs the package polars, which is not installed") from error
        return polars.DataFrame(self.table)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per row."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows

    def __repr__(self) -> str:
        names = self.table.column_names
        shown = self.table.slice(0, _SHOWN_ROWS).to_pylist()
        cells = [names] + [[_cell(row[name]) for name in names] for row in shown]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells]
        hidden = len(self) - len(shown)
        closing = [f"... {hidden} more rows"] if hidden else []
        return "\n".join([f"Recommendations, {len(self)} rows", *(line.rstrip() for line in lines), *closing])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
