"""What callers get: the shape of every answer, for the description alone; answers are written without these classes."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from rankformer.serving.requests import RawId

_USER, _ITEM, _VERSION = "mira-001", "book-017", "3f0c9a1be274"
_ENTRY: dict[str, JsonValue] = {"item_id": _ITEM, "title": "Distant Station (space)", "score": 3.271, "rank": 1}


class Answer(BaseModel):
    """The base of what callers get."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    model_version: str = Field(examples=[_VERSION])
    """First 12 hexadecimal digits of the manifest's SHA-256."""


class ErrorBody(BaseModel):
    """A code for programs and a sentence for people."""

    code: str = Field(examples=["unknown_user"])
    message: str = Field(examples=["the model knows no user 'nobody'"])


class ErrorAnswer(BaseModel):
    """What every 4xx and 5xx holds."""

    error: ErrorBody


class ListEntry(BaseModel):
    """One place of a list."""

    model_config = ConfigDict(json_schema_extra={"example": _ENTRY})

    item_id: RawId
    title: str | None
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
    """The list of a made-up user."""

    items: list[ListEntry]
    unknown_items: list[RawId]
    fallback: bool = Field(description="Whether nothing in the history is known, so that popular items are listed.")


class SimilarAnswer(Answer):
    """The items most like one item; the score is the cosine."""

    item_id: RawId = Field(examples=[_ITEM])
    title: str | None
    items: list[ListEntry]


class ReasonEntry(BaseModel):
    """What one item of the history brings to a score."""

    item_id: RawId = Field(examples=[_ITEM])
    title: str | None
    contribution: float | None


class ExplainAnswer(Answer):
    """A score and its parts; contributions, own and crowd add up to it."""

    user_id: RawId | None = Field(examples=[_USER])
    item_id: RawId = Field(examples=["book-003"])
    title: str | None
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


class TitledItem(BaseModel):
    """An item by id and title."""

    item_id: RawId = Field(examples=[_ITEM])
    title: str | None


class HistoryAnswer(Answer):
    """What a user has, in the order of the training log."""

    user_id: RawId = Field(examples=[_USER])
    count: int
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
    """The card of the model."""

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
    """How the service is."""

    status: str = Field(examples=["ok"])
