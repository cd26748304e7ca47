"""`Recommendations`: ranked lists as one table, for Arrow, pandas, polars or plain Python."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rankformer.errors import ConfigError
from rankformer.scoring.html import html_table

if TYPE_CHECKING:
    import pandas
    import polars

_SHOWN_ROWS, _SHOWN_IN_HTML = 10, 50


@dataclass(frozen=True, eq=False, repr=False)
class Recommendations:
    """Ranked lists, one row per item: whom it is for, the item, its score, its rank from 1, and a title if known.

    Attributes:
        table: columns `user_id, item_id, score, rank[, title]`, or `item_id, similar_item_id, ...` for similar items;
            then the attributes of items, and `cold` where some may have no interactions.
        unknown_items: for lists from histories, the raw ids of each that the model does not know and ignored.
        fallbacks: whom popularity answered because the model knows nothing of theirs.
        left_out: the members of a blend that have no part in these lists, since they cannot score new users.
    """

    table: pa.Table
    unknown_items: dict[Any, list[Any]] = field(default_factory=dict)
    fallbacks: list[Any] = field(default_factory=list)
    left_out: tuple[str, ...] = ()

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

    def _repr_html_(self) -> str:
        shown = self.table.slice(0, _SHOWN_IN_HTML)
        hidden = len(self) - len(shown)
        notes = [f"... {hidden:,} more rows"] if hidden else []
        if self.fallbacks:
            names = ", ".join(map(str, self.fallbacks[:5])) + (", ..." if len(self.fallbacks) > 5 else "")
            notes.append(f"most popular items, since the model knows nothing of theirs: {names}")
        if self.left_out:
            notes.append(f"without {', '.join(self.left_out)}, which cannot score new users")
        rows = zip(*(column.to_pylist() for column in shown.columns), strict=True)
        return html_table(shown.column_names, rows, f"Recommendations, {len(self):,} rows", *notes)

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
