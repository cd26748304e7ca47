"""Requests and answers as pydantic models: the only source of validation and of the OpenAPI description."""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from annotated_types import Le, MaxLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, JsonValue, create_model

from rankformer.serving.settings import ServiceSettings

RawId = str | int | float | bool

_USER, _ITEM, _VERSION = "mira-001", "book-017", "3f0c9a1be274"  # of the demo
_ENTRY: dict[str, JsonValue] = {"item_id": _ITEM, "title": "Distant Station (space)", "score": 3.271, "rank": 1}


def _only_digits(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 18):
        raise ValueError("an integer is needed")
    return value


def _only_true_or_false(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("true or false is needed")
    return value


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# In a query everything is a string, and pydantic would read "yes", " 7 " and "1_0" too; the schema says otherwise.
QueryInt = Annotated[int, BeforeValidator(_only_digits)]
QueryBool = Annotated[bool, BeforeValidator(_only_true_or_false)]
# JSON has one kind of number, and 10.0 is an integer.
JsonInt = Annotated[int, BeforeValidator(_integer)]


@dataclass(frozen=True)
class Limit:
    """Marks a field as bounded by a setting of the service: the value of a number, the length of a list."""

    setting: str


Model = TypeVar("Model", bound=BaseModel)


def with_limits(model: type[Model], settings: ServiceSettings) -> type[Model]:
    """Return a request model with the limits of one service in place of its `Limit` marks."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        for limit in (mark for mark in field.metadata if isinstance(mark, Limit)):
            bound = getattr(settings, limit.setting)
            constraints = (Le(bound),) if name in ("k", "limit") else (MaxLen(bound), FailFast())
            # Next to the type itself: behind a validator pydantic could not describe a constraint in the schema.
            annotation = Annotated[field.annotation, *constraints, *field.metadata]  # type: ignore[name-defined]
            fields[name] = (annotation, Field(default=field.default, description=field.description))
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields) if fields else model


class Request(BaseModel):
    """The base of queries and bodies: unknown fields, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class SimilarQuery(Request):
    """How many similar items to return."""

    k: Annotated[QueryInt, Limit("max_k")] = Field(default=10, ge=1)
    """Length of the list; shorter where fewer items remain."""


class RecommendQuery(SimilarQuery):
    """How to rank the items of one user."""

    include_seen: QueryBool = False
    """Whether items of the user's history may be in the list."""
    allow: Annotated[list[str], Limit("max_filter")] = []
    """Item ids outside of which nothing is returned; repeat the name for each."""
    block: Annotated[list[str], Limit("max_filter")] = []
    """Item ids that are never returned; repeat the name for each."""


class HistoryQuery(Request):
    """How much of a history to return."""

    limit: Annotated[QueryInt, Limit("max_listed")] = Field(default=100, ge=1)
    """Most entries wanted."""


class SearchQuery(Request):
    """What to search for."""

    query: str = Field(default="", max_length=200)
    """Text to be contained, in any case; those that begin with it come first."""
    limit: Annotated[QueryInt, Limit("max_listed")] = Field(default=20, ge=1)
    """Most entries wanted."""


class RequestBody(Request):
    """The base of JSON bodies: numbers are not read from strings, nor booleans from numbers."""

    model_config = ConfigDict(strict=True)


class RankingBody(RequestBody):
    """How to rank items."""

    k: Annotated[JsonInt, Limit("max_k")] = Field(default=10, ge=1)
    """Length of the lists; shorter where fewer items remain."""
    include_seen: bool = False
    """Whether items of the history may be in the list."""
    allow: Annotated[list[RawId] | None, Limit("max_filter")] = None
    """Item ids outside of which nothing is returned."""
    block: Annotated[list[RawId] | None, Limit("max_filter")] = None
    """Item ids that are never returned."""


class BatchRequest(RankingBody):
    """Lists for many users at once."""

    model_config = ConfigDict(json_schema_extra={"example": {"users": [_USER, "otto-002"], "k": 5}})

    users: Annotated[list[RawId], Limit("max_users")]
    """User ids, in the order wanted."""


class SessionRequest(RankingBody):
    """A list for a new user."""

    model_config = ConfigDict(json_schema_extra={"example": {"history": [_ITEM, "book-042"], "k": 5}})

    history: Annotated[list[RawId], Limit("max_history")]
    """Item ids that this user has; those the model does not know are skipped and named in the answer."""


class ExplainSessionRequest(RequestBody):
    """An explanation for a new user and an item."""

    model_config = ConfigDict(json_schema_extra={"example": {"history": [_ITEM, "book-042"], "item": "book-003"}})

    history: Annotated[list[RawId], Limit("max_history")]
    """Item ids that this user has."""
    item: RawId
    """The item to explain."""


class Answer(BaseModel):
    """The base of answers. Answers are written as plain dictionaries; these classes only describe them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    model_version: str = Field(examples=[_VERSION])
    """First 12 hexadecimal digits of the manifest's SHA-256."""


class ErrorBody(BaseModel):
    """A code for programs and a sentence for people."""

    code: str = Field(examples=["unknown_user"])
    message: str = Field(examples=["the model knows no user 'nobody'"])


class ErrorAnswer(BaseModel):
    """The body of every 4xx and 5xx."""

    error: ErrorBody


class TitledItem(BaseModel):
    """An item by id and title."""

    item_id: RawId = Field(examples=[_ITEM])
    title: str | None


class ListEntry(TitledItem):
    """One item of a ranked list."""

    model_config = ConfigDict(json_schema_extra={"example": _ENTRY})

    score: float | None
    rank: int


class RecommendAnswer(Answer):
    """The list of one user, best first."""

    user_id: RawId = Field(examples=[_USER])
    items: list[ListEntry]


class BatchEntry(BaseModel):
    """The list of one user of a batch, or why there is none."""

    user_id: RawId = Field(examples=[_USER])
    items: list[ListEntry] | None = None
    error: ErrorBody | None = None


class BatchAnswer(Answer):
    """The lists of a batch, in the order of its users."""

    results: list[BatchEntry]


class SessionAnswer(Answer):
    """The list of a new user."""

    items: list[ListEntry]
    unknown_items: list[RawId]
    fallback: bool = Field(description="Whether nothing in the history is known, so that popular items are listed.")


class SimilarAnswer(Answer, TitledItem):
    """The items most similar to one item; the score is the cosine."""

    items: list[ListEntry]


class ReasonEntry(TitledItem):
    """The contribution of one item of the history to a score."""

    contribution: float | None


class ExplainAnswer(Answer, TitledItem):
    """A score and its parts: it is the sum of the contributions of items, user (own) and everything else (crowd)."""

    user_id: RawId | None = Field(examples=[_USER])
    score: float | None
    reasons: list[ReasonEntry]
    own: float | None
    crowd: float | None


class UserEntry(BaseModel):
    """A user and how many items they have."""

    user_id: RawId = Field(examples=[_USER])
    count: int


class UsersAnswer(Answer):
    """Users that were found."""

    users: list[UserEntry]


class HistoryAnswer(Answer, UserEntry):
    """The history of a user, in the order of the interaction log."""

    items: list[TitledItem]


class ItemEntry(TitledItem):
    """An item and how many users have it."""

    count: int


class ItemsAnswer(Answer):
    """Items that were found."""

    items: list[ItemEntry]


class CurvePoint(BaseModel):
    """One validation of the training."""

    epoch: int | None
    value: float | None
    seconds: float | None


class Abilities(BaseModel):
    """What the method can do."""

    fold_in: bool
    explain: bool
    similar: bool


class ModelAnswer(Answer):
    """The model card."""

    model: str = Field(examples=["rankformer"])
    settings: dict[str, Any]
    seed: int
    data: dict[str, Any]
    metrics: dict[str, float | None]
    protocol: dict[str, Any]
    versions: dict[str, Any]
    created: str
    users: int
    items: int
    pairs: int
    curve: list[CurvePoint]
    curve_metric: str | None
    can: Abilities


class ReloadAnswer(Answer):
    """The model that answers from now on."""

    previous_version: str | None


class StatusAnswer(BaseModel):
    """The state of the service."""

    status: str = Field(examples=["ok"])
