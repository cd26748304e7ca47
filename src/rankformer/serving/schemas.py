"""Requests and answers as pydantic models: the only source of validation and of the OpenAPI description."""

import re
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Le, MaxLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, JsonValue, create_model

from rankformer.scoring.filters import MAX_LENGTH
from rankformer.serving.ids import MAX_ID_LENGTH
from rankformer.serving.settings import ServiceSettings

RawId = str | int | float | bool
_MOST_RULES, _MOST_QUERY_RULES = 20, 5  # boosts or limits in one request; a URL holds less than a body

_USER, _ITEM, _VERSION = "mira-001", "book-017", "3f0c9a1be274"  # of the demo
_ENTRY: dict[str, JsonValue] = {"item_id": _ITEM, "title": "Distant Station (space)", "score": 3.271, "rank": 1}


def _written_as(pattern: str, meaning: str) -> BeforeValidator:
    """Return a check of strings: pydantic would read "yes", " 7 " and "1_0" too, though the schema says otherwise."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and not re.fullmatch(pattern, value):
            raise ValueError(f"{meaning} is needed")
        return value

    return BeforeValidator(check)


# In a query everything is a string.
QueryInt = Annotated[int, _written_as("[0-9]{1,18}|-[0-9]{1,17}", "an integer")]
QueryBool = Annotated[bool, _written_as("true|false", "true or false")]
# JSON has one kind of number, and 10.0 is an integer.
JsonInt = Annotated[
    int, BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
]


def _format(name: str, example: str, longest: int = MAX_LENGTH) -> Any:
    """Return what the description says of a string in a format of ours; whether it can be read depends on the model."""
    return Field(max_length=longest, json_schema_extra={"format": name, "example": example})


Expression = Annotated[str, _format("expression", "price < 50 and in_stock")]
QueryExpression = Annotated[str, _format("expression", "price < 50 and in_stock", 1000)]
QueryBoost = Annotated[str, _format("boost", "0.5:on_sale", 300)]
Limit = Annotated[str, _format("limit", "2:brand", 100)]
Boost = Annotated[str, _format("boost", "0.5:on_sale", 2000)]


# Which setting of the service bounds a field, wherever it occurs: the value of a number, the length of a list.
_LIMITS = {
    "k": "max_k",
    "limit": "max_listed",
    "users": "max_users",
    "history": "max_history",
    "allow": "max_filter",
    "block": "max_filter",
    "events": "max_events",
}

Model = TypeVar("Model", bound=BaseModel)


def with_limits(model: type[Model], settings: ServiceSettings) -> type[Model]:
    """Return a request model with the limits of one service; a list stops at the first entry that breaks one."""
    fields: dict[str, Any] = {}
    for name in model.model_fields.keys() & _LIMITS.keys():
        field, bound = model.model_fields[name], getattr(settings, _LIMITS[name])
        constraints = (Le(bound),) if name in ("k", "limit") else (MaxLen(bound), FailFast())
        # Next to the type itself: behind a validator pydantic could not describe a constraint in the schema.
        annotation = Annotated[field.annotation, *constraints, *field.metadata]  # type: ignore[name-defined]
        fields[name] = (annotation, Field(default=field.default, description=field.description))
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


class Request(BaseModel):
    """The base of queries and bodies: unknown fields, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


Fallback = Literal["popularity", "none"]


class SimilarQuery(Request):
    """Which similar items to return."""

    k: QueryInt = Field(default=10, ge=1)
    """Length of the list; shorter where fewer items remain."""
    allow: list[str] = []
    """Item ids outside of which nothing is returned; repeat the name for each."""
    block: list[str] = []
    """Item ids that are never returned; repeat the name for each."""
    where: QueryExpression | None = None
    """Expression over the attributes of items that every item of the list meets."""
    at_most: list[Limit] = Field(default=[], max_length=_MOST_QUERY_RULES)
    """N:ATTRIBUTE, such as 2:brand: at most N items with one value of the attribute; repeat the name for each."""
    boost: list[QueryBoost] = Field(default=[], max_length=_MOST_QUERY_RULES)
    """W:EXPRESSION, such as 0.5:on_sale: W standard deviations of the user's scores are added to those of the items
    that meet the expression; W below 0 buries; repeat the name for each."""


class RecommendQuery(SimilarQuery):
    """How to rank the items of one user."""

    include_seen: QueryBool = False
    """Whether items of the user's history may be in the list."""
    fallback: Fallback = "popularity"
    """What whoever the model knows nothing about gets: the most popular items, or 404."""
    include_cold: QueryBool = True
    """Whether items without interactions, scored by their attributes, may be in the list."""


class HistoryQuery(Request):
    """How much of a history to return."""

    limit: QueryInt = Field(default=100, ge=1)
    """Most entries wanted."""


class SearchQuery(Request):
    """What to search for."""

    query: str = Field(default="", max_length=200)
    """Text to be contained, in any case; those that begin with it come first."""
    limit: QueryInt = Field(default=20, ge=1)
    """Most entries wanted."""


class RequestBody(Request, strict=True):
    """The base of JSON bodies: numbers are not read from strings, nor booleans from numbers."""


class RankingBody(RequestBody):
    """How to rank items."""

    k: JsonInt = Field(default=10, ge=1)
    """Length of the lists; shorter where fewer items remain."""
    include_seen: bool = False
    """Whether items of the history may be in the list."""
    fallback: Fallback = "popularity"
    """What whoever the model knows nothing about gets: the most popular items, or an error."""
    allow: list[RawId] | None = None
    """Item ids outside of which nothing is returned."""
    block: list[RawId] | None = None
    """Item ids that are never returned."""
    where: Expression | None = None
    """Expression over the attributes of items that every item of a list meets."""
    at_most: list[Limit] = Field(default=[], max_length=_MOST_RULES)
    """N:ATTRIBUTE, such as 2:brand: at most N items with one value of the attribute."""
    boost: list[Boost] = Field(default=[], max_length=_MOST_RULES)
    """W:EXPRESSION, such as 0.5:on_sale: W standard deviations of the user's scores are added to those of the items
    that meet the expression; W below 0 buries."""
    include_cold: bool = True
    """Whether items without interactions, scored by their attributes, may be in the list."""


class BatchRequest(RankingBody, json_schema_extra={"example": {"users": [_USER, "otto-002"], "k": 5}}):
    """Lists for many users at once."""

    users: list[RawId]
    """User ids, in the order wanted."""


class SessionRequest(RankingBody, json_schema_extra={"example": {"history": [_ITEM, "book-042"], "k": 5}}):
    """A list for a new user."""

    history: list[RawId]
    """Item ids that this user has; those the model does not know are skipped and named in the answer."""
    user: RawId | None = None
    """Id of a user whose known interactions come before the history; one that is unknown is a new user."""


class ExplainSessionRequest(
    RequestBody, json_schema_extra={"example": {"history": [_ITEM, "book-042"], "item": "book-003"}}
):
    """An explanation for a new user and an item."""

    history: list[RawId]
    """Item ids that this user has."""
    item: RawId
    """The item to explain."""
    user: RawId | None = None
    """Id of a known user whose interactions come before the history."""


# Of any type here; the description of a loaded run has the types of its ids (`RecentEvents.described`).
_EventId = Annotated[str, Field(max_length=MAX_ID_LENGTH)] | int | float | bool


class EventEntry(RequestBody):
    """One interaction."""

    user: _EventId
    """User id, known or new."""
    item: _EventId
    """Item id, known or new."""
    event: str | None = Field(default=None, max_length=200)
    """What happened, where the run was trained with weights of events."""
    weight: float | None = Field(default=None, gt=0, le=1e6)
    """What it counts, times the weight of the event; 1 by default."""
    time: Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})] | None = None
    """When it happened, as ISO 8601, in UTC unless it says otherwise; not in the future, now by default."""


class EventsRequest(RequestBody, json_schema_extra={"example": {"events": [{"user": _USER, "item": _ITEM}]}}):
    """Interactions for the journal."""

    events: list[EventEntry] = Field(min_length=1)
    """The interactions."""


# Answers are written as plain dictionaries; the models from here on only describe them.
_UserId = Annotated[RawId, Field(examples=[_USER])]
_ItemId = Annotated[RawId, Field(examples=[_ITEM])]
_Version = Annotated[
    str, Field(examples=[_VERSION], description="First 12 hexadecimal digits of the manifest's SHA-256.")
]
_Attributes = Annotated[
    dict[str, Any] | None, Field(description="Attributes by name, where the run has any.", examples=[{"price": 12.5}])
]
_Cold = Annotated[
    bool, Field(description="Whether the item has no interactions and was scored by its attributes; absent if false.")
]
_Fallback = Annotated[
    Literal["popularity"] | None,
    Field(description="What is listed because the model knows nothing of the user's; null where it ranks by itself."),
]


def _model(name: str, doc: str, *bases: type[BaseModel], **fields: Any) -> type[BaseModel]:
    """Return a model by its fields: a type, `[type]` for a list of them, or (type, default) for one that may lack."""
    for field, kind in fields.items():
        kind, default = kind if isinstance(kind, tuple) else (kind, ...)
        fields[field] = (GenericAlias(list, kind[0]) if isinstance(kind, list) else kind, default)
    return create_model(name, __doc__=doc, __base__=bases or None, **fields)


class ListEntry(BaseModel, json_schema_extra={"example": _ENTRY}):
    """One item of a ranked list."""

    item_id: _ItemId
    title: str | None
    score: float | None
    rank: int
    attributes: _Attributes = None
    cold: _Cold = False


_Answer = _model("Answer", "What every answer of a model has.", model_version=_Version)
_Titled = _model(
    "TitledItem", "An item by id and title.", item_id=_ItemId, title=str | None, attributes=(_Attributes, None)
)
_User = _model("UserEntry", "A user and how many items they have.", user_id=_UserId, count=int)
_Item = _model("ItemEntry", "An item and how many users have it.", _Titled, count=int)
_Reason = _model(
    "ReasonEntry", "The contribution of one item of the history to a score.", _Titled, contribution=float | None
)
_Error = _model(
    "ErrorBody",
    "A code for programs and a sentence for people.",
    code=Annotated[str, Field(examples=["unknown_user"])],
    message=Annotated[str, Field(examples=["the model knows no user 'nobody'"])],
)
_BatchEntry = _model(
    "BatchEntry",
    "The list of one user of a batch, or why there is none.",
    user_id=_UserId,
    items=(list[ListEntry] | None, None),
    fallback=(_Fallback, None),
    error=(_Error | None, None),
)
_Point = _model(
    "CurvePoint", "One validation of the training.", epoch=int | None, value=float | None, seconds=float | None
)
_Member = _model(
    "BlendMember",
    "A member of a blend: its weight, its validation metric alone, that of the blend without it, and what it took.",
    label=str,
    settings=dict[str, Any],
    **dict.fromkeys(("weight", "alone", "without", "seconds"), float | None),
)
_Blend = _model(
    "BlendReport",
    "What validation chose for a blend; `refused` says why a member was left out.",
    value=float | None,
    members=[_Member],
    refused=dict[str, str],
)
_Abilities = _model("Abilities", "What the method can do.", fold_in=bool, explain=bool, similar=bool)

ErrorAnswer = _model("ErrorAnswer", "The body of every 4xx and 5xx.", error=_Error)
RecommendAnswer = _model(
    "RecommendAnswer",
    "The list of one user, best first.",
    _Answer,
    user_id=_UserId,
    items=[ListEntry],
    fallback=_Fallback,
)
BatchAnswer = _model("BatchAnswer", "The lists of a batch, in the order of its users.", _Answer, results=[_BatchEntry])
SessionAnswer = _model(
    "SessionAnswer",
    "The list of a new user.",
    _Answer,
    items=[ListEntry],
    unknown_items=[RawId],
    fallback=_Fallback,
    left_out=(Annotated[list[str] | None, Field(description="Members of a blend that cannot score new users.")], None),
)
SimilarAnswer = _model(
    "SimilarAnswer",
    "The items most similar to one item; the score is the cosine.",
    *(_Answer, _Titled),
    items=[ListEntry],
)
ExplainAnswer = _model(
    "ExplainAnswer",
    "A score and its parts: it is the sum of the contributions of items, user (own) and everything else (crowd).",
    *(_Answer, _Titled),
    user_id=Annotated[RawId | None, Field(examples=[_USER])],
    score=float | None,
    reasons=[_Reason],
    own=float | None,
    crowd=float | None,
    members=(Annotated[dict[str, float] | None, Field(description="Of a blend: the score by member.")], None),
)
UsersAnswer = _model("UsersAnswer", "Users that were found.", _Answer, users=[_User])
HistoryAnswer = _model(
    "HistoryAnswer", "The history of a user, in the order of the interaction log.", _Answer, _User, items=[_Titled]
)
ItemsAnswer = _model("ItemsAnswer", "Items that were found.", _Answer, items=[_Item])
ModelAnswer = _model(
    "ModelAnswer",
    "The model card.",
    _Answer,
    model=Annotated[str, Field(examples=["rankformer"])],
    **dict.fromkeys(("settings", "data", "protocol", "versions"), dict[str, Any]),
    **dict.fromkeys(("seed", "users", "items", "pairs"), int),
    metrics=dict[str, float | None],
    warm_metrics=dict[str, float | None],
    refit=dict[str, Any] | None,
    update=(dict[str, Any] | None, None),
    created=str,
    curve=[_Point],
    curve_metric=str | None,
    can=_Abilities,
    blend=(_Blend | None, None),
    attributes=(dict[str, str] | None, None),
    cold_items=(int | None, None),
    compared_version=(Annotated[str | None, Field(description="Of the model at /v1/compare, if there is one.")], None),
)
EventsAnswer = _model("EventsAnswer", "How many events are on disk now: all that were sent.", _Answer, accepted=int)
ReloadAnswer = _model("ReloadAnswer", "The model that answers from now on.", _Answer, previous_version=str | None)
StatusAnswer = _model("StatusAnswer", "The state of the service.", status=Annotated[str, Field(examples=["ok"])])
