"""What callers send: queries and JSON bodies that refuse whatever they do not know."""

from typing import Annotated, Any, ClassVar, Self
from urllib.parse import parse_qsl

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from rankformer.serving.problems import from_validation, invalid, shortened

RawId = StrictStr | StrictInt | StrictFloat | StrictBool

_MOST_FIELDS = 4096
_USER, _ITEM = "mira-001", "book-017"  # of the demo


def _only_digits(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 18):
        raise ValueError("a whole number is needed")
    return value


def _only_words(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("true or false is needed")
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# In a query everything is text, and pydantic would read "yes", " 7 " and "1_0" too; the schema says otherwise.
QueryInt = Annotated[int, BeforeValidator(_only_digits)]
QueryBool = Annotated[bool, BeforeValidator(_only_words)]
# JSON has one kind of number, and 10.0 is a whole one.
JsonInt = Annotated[int, BeforeValidator(_whole)]


class Request(BaseModel):
    """The base of what callers send."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class QueryString(Request):
    """The base of what follows the question mark.

    Read here and not by FastAPI, whose own way took half the time of a whole request.
    """

    LISTS: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def read(cls, query: bytes) -> Self:
        """Return what a query says, or raise the answer to it."""
        fields: dict[str, Any] = {}
        try:
            pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise invalid(f"the query has more than {_MOST_FIELDS} fields") from None
        for name, value in pairs:
            if name in cls.LISTS:
                fields.setdefault(name, []).append(value)
            elif name in fields:
                raise invalid(f"{shortened(name)}: given more than once")
            else:
                fields[name] = value
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise from_validation(_findings(error)) from None


class RequestBody(Request):
    """The base of JSON bodies: numbers are not read from texts, nor truth values from numbers."""

    model_config = ConfigDict(strict=True)

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Return what a body says, or raise the answer to it."""
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise from_validation(_findings(error)) from None


def _findings(error: ValidationError) -> list[Any]:
    """Return what was wrong, without the caller's input."""
    return list(error.errors(include_url=False, include_context=False, include_input=False))


class LengthQuery(QueryString):
    """How long a list should be."""

    k: QueryInt = Field(default=10, ge=1)
    """Length of the list; shorter where fewer items remain."""


class RecommendQuery(LengthQuery):
    """What a list should be like."""

    LISTS = frozenset(("allow", "block"))

    include_seen: QueryBool = False
    """Whether items of the user's history may be in the list."""
    allow: list[str] | None = None
    """Item ids outside of which nothing is returned; repeat the name for each."""
    block: list[str] | None = None
    """Item ids that are never returned; repeat the name for each."""


class SearchQuery(QueryString):
    """What to look for."""

    query: str = Field(default="", max_length=200)
    """Text to be contained, in any case; those that begin with it come first."""
    limit: QueryInt = Field(default=20, ge=1)
    """Most entries wanted."""


class HistoryQuery(QueryString):
    """How much of a history to show."""

    limit: QueryInt = Field(default=100, ge=1)
    """Most entries wanted."""


class ListWish(RequestBody):
    """What lists should be like."""

    k: JsonInt = Field(default=10, ge=1)
    """Length of the lists; shorter where fewer items remain."""
    include_seen: bool = False
    """Whether items of the history may be in the list."""
    allow: list[RawId] | None = None
    """Item ids outside of which nothing is returned."""
    block: list[RawId] | None = None
    """Item ids that are never returned."""


class BatchRequest(ListWish):
    """Lists for many users at once."""

    model_config = ConfigDict(json_schema_extra={"example": {"users": [_USER, "otto-002"], "k": 5}})

    users: list[RawId]
    """User ids, in the order wanted."""


class SessionRequest(ListWish):
    """A list for someone the model has never seen."""

    model_config = ConfigDict(json_schema_extra={"example": {"history": [_ITEM, "book-042"], "k": 5}})

    history: list[RawId]
    """Item ids that this user has; those the model does not know are passed over and named in the answer."""


class ExplainSessionRequest(RequestBody):
    """Reasons for an item and a made-up user."""

    model_config = ConfigDict(json_schema_extra={"example": {"history": [_ITEM, "book-042"], "item": "book-003"}})

    history: list[RawId]
    """Item ids that this user has."""
    item: RawId
    """The item to give reasons for."""
