"""`ReadOptions`: how to read what DATA names; and the column names that are tried without being told."""

import codecs
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from rankformer.errors import ConfigError
from rankformer.settings import Settings

DELIMITER_WORDS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}

# Column names tried, in this order and in any case, when the caller names no column.
KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "user": ("user", "user_id", "userid", "uid", "user_idx", "customer", "customer_id", "visitor_id", "visitorid"),
    "item": (
        *("item", "item_id", "itemid", "iid", "item_idx", "product", "product_id", "productid", "sku", "asin"),
        *("movie_id", "movieid", "business_id", "article_id", "book_id", "track_id"),
    ),
    "time": ("time", "timestamp", "ts", "datetime", "date", "event_time", "created_at"),
    "weight": ("weight", "rating", "strength", "count", "plays"),
    "title": ("title", "item_title", "item_name"),
}
ROLES = (*KNOWN_NAMES, "event")  # an event column is never guessed


def _by_word(delimiter: str | None) -> str | None:
    if delimiter is not None and set(delimiter) & set('"\r\n\0'):
        raise ConfigError(f"delimiter={delimiter!r}: quotes and line ends cannot separate columns; use another")
    return DELIMITER_WORDS.get(delimiter or "", delimiter)


def _known_encoding(encoding: str | None) -> str | None:
    try:
        if encoding is not None:
            "".encode(encoding)
            encoding = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise ConfigError(f"encoding={encoding!r} is unknown; expected utf-8, latin-1, utf-16 or the like") from None
    return None if encoding == "utf-8" else encoding


def _weights_from_0(weights: dict[str, float] | None) -> dict[str, float] | None:
    if weights is not None and not weights:
        raise ConfigError("event_weights is empty; expected weights such as view=1,cart=3,purchase=10")
    for event, weight in (weights or {}).items():
        if weight < 0:
            raise ConfigError(f"event_weights: {event}={weight}; expected a number from 0, where 0 drops the event")
    return weights


class ReadOptions(Settings):
    """How to read what DATA names, and how much of it at most."""

    format: str | None = None
    """Format of the files when their extension does not say."""
    header: bool | None = None
    """Whether csv and tsv files start with column names; None finds out."""
    delimiter: Annotated[str | None, AfterValidator(_by_word)] = Field(default=None, min_length=1)
    """What separates the columns of csv and tsv files; None finds out among , ; | and tab."""
    encoding: Annotated[str | None, AfterValidator(_known_encoding)] = None
    """Encoding of text files; None finds out among UTF-8, UTF-16 and cp1252 (Western European)."""
    time_format: str | None = None
    """How times are written, such as %d.%m.%Y %H:%M; None finds out."""
    on_bad_row: Literal["stop", "skip"] = "stop"
    """Whether a row that cannot be used ends the reading or is left out."""
    bad_rows: str | None = Field(default=None, exclude=True)
    """File for the counts and the first examples of the rows left out."""
    event_weights: Annotated[
        dict[Annotated[str, BeforeValidator(str)], float] | None, AfterValidator(_weights_from_0)
    ] = None
    """Weight of each event, of those that are not listed by the name other; 0 drops them."""
    query: str | None = None
    """SQL that selects the interactions from a database."""
    table: str | None = None
    """Table of a database that holds the interactions."""
    max_rows: int = Field(default=200_000_000, ge=1)
    """Most rows that are read."""
    max_line_bytes: int = Field(default=16 << 20, ge=1, le=1 << 30)
    """Longest line of a text file."""
    max_expansion: float = Field(default=200.0, ge=1)
    """How many times its size a packed file may unpack to (64 MB are always allowed)."""
