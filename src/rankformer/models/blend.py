"""Blend: several methods, quickly tuned, standardized per user and added with weights chosen on validation.

    y_ui = sum_k w_k (s_k,ui - mean_k,u) / sd_k,u          over the items, for every member k (`scoring.blend`)

Every member is fitted with its defaults and, after a quick search over the few settings that matter
(`models.quick_search`), with the best of them; both may enter, because what is best alone is not always what helps
most. The weights come from bagged greedy selection on the validation part (`evaluation.blend_weights`). Without a
validation part a tenth of the interactions is held out to choose on, and then everything is fitted again on all.

How the time is bounded is in `models.blend_fit`.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator
from torch import Tensor

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.base import Model
from rankformer.models.blend_fit import BlendFit
from rankformer.runs.fitting import TrainingData
from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import BlendScorer
from rankformer.settings import ModelSettings, seconds_of
from rankformer.training.context import Event, FitContext

# In this order: time left goes to the last. Popularity costs nothing, and what it adds where histories are short no
# other member does.
MEMBERS = ("popularity", "item-knn", "gf-cf", "ease", "mf-softmax", "lightgcn", "topkgat", "rankformer", "ials")
# What a member has here by default. Scores by cosine alone are worse by themselves than with popularity in them, and
# more unlike those of the other members.
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "popularity": {"exponent": 0.5},
    "mf-softmax": {"norm_exponent": 0.0, "learning_rate": 0.01, "least_batches": 64},
}
HELD_OUT = 0.1  # of the interactions, where there is no validation part
LEAST_TO_CHOOSE = 50  # interactions; fewer are not divided


class BlendSettings(ModelSettings):
    """Hyperparameters of a blend."""

    members: tuple[str, ...] = MEMBERS
    """Methods to blend, by name."""
    member_settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Hyperparameters of members, by the member's name; what is given here is not searched."""
    tune: bool = True
    """Whether to search the few settings of each member that matter."""
    budget: float | None = Field(default=900.0, gt=0)
    """Seconds for everything, as a number or as 90s, 2m or 1h; none for no bound."""
    metric: str = "ndcg@20"
    """Metric that chooses the members' settings on the validation part."""

    @field_validator("members", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value

    @field_validator("members")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) < len(value) or Blend.name in value:
            raise ConfigError(f"members={','.join(value)[:80]}: name at least one method, each once, not blend itself")
        return value

    @field_validator("budget", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return seconds_of(value) if isinstance(value, str) else value


class Blend(Model):
    """Several methods, quickly tuned and added with weights chosen on validation.

    Use it when the lists should be the best that the log allows; it takes the time of all its members together.
    """

    name = "blend"
    title = "Blend"
    paper = "Caruana et al., Ensemble Selection from Libraries of Models, ICML 2004"
    has_vectors = None
    uses_weights = True  # in the members that can use them
    most_validation_users: ClassVar[int | None] = 6_000  # validations are most of what a quick search takes
    on_ranks = True  # with the members that can
    settings: BlendSettings
    search_space = {"tune": [True, False]}

    @Model.takes(BlendSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._choices: dict[str, Any] = {}
        self._parameters: dict[str, Tensor] = {}  # of the trained members, as NUMBER.NAME
        self._report: Event | None = None  # of a fit without a validation part, on what it held out
        for name in (members := self.settings.members):  # a mistake is found before the work
            self.member(name)
        for name in self.settings.member_settings.keys() - set(members):
            raise ConfigError(f"member_settings: {name[:80]!r} is none of the members {', '.join(members)}")
        for name, given in self.settings.member_settings.items():
            if given.get("metric", self.settings.metric) != self.settings.metric:
                raise ConfigError(
                    f"member_settings: {name} has another metric than the blend; set the blend's, for all members"
                )

    def member(self, name: str, **changes: Any) -> Model:
        """Return a member, not fitted, with some of its settings changed."""
        from rankformer.models.registry import model_class  # which knows this class

        method, given = model_class(name), self.settings.member_settings.get(name, {})
        own = {"tune": False, "metric": self.settings.metric, **OWN_SETTINGS.get(name, {})}  # the blend searches itself
        own = {key: value for key, value in own.items() if key in method.settings_class.model_fields}
        return method(seed=self.seed, device=self.settings.device, **{**own, **given, **changes})

    def choices_without(
        self, train: TrainingData, verbose: bool | None, on_event: Callable[[Event], None] | None
    ) -> Mapping[str, Any] | None:
        """Return what a fit chooses on a tenth of the training part, held out; None where that is too small."""
        if len(train) < LEAST_TO_CHOOSE:
            return None
        parts = train.split(by="random", parts=(1 - HELD_OUT, HELD_OUT, 0.0), seed=self.seed)
        chooser = type(self)(**self.settings.model_dump())
        chooser.fit(parts.train, parts.valid, on_event=on_event, verbose=verbose)
        self._report = next((event for event in chooser.log if event["event"] == "blend"), None)
        return chooser.choices()

    def choices(self) -> dict[str, Any]:
        """Return the members with their settings, what their validations chose, and their weights."""
        found = next((event["members"] for event in self.log if event["event"] == "blend"), ())
        names = ("label", "weight", "member", "settings", "choices")
        kept = [{name: each[name] for name in names} for each in found if each["weight"] > 0]
        return self._choices or ({"members": kept} if kept else {})

    def parameters(self) -> dict[str, Tensor]:
        return self._parameters

    def restore(self, parameters: dict[str, Tensor]) -> None:
        self._parameters = parameters

    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer:
        work = BlendFit(self, graph, context)
        if not context.choices:
            pool = work.pool()
            weights = work.weigh(pool)
        else:
            chosen = context.choices["members"]
            pool = {each["label"]: work.again(each, at) for at, each in enumerate(chosen)}
            weights = {each["label"]: each["weight"] for each in chosen}
            report, self._report = self._report, None
            if report is not None:  # after the last checkpoint, so that a resumed log has it once
                work.record(report)
        kept = {label: trial for label, trial in pool.items() if weights[label] > 0}
        self._choices = {
            "members": [{"label": label, "weight": weights[label], **trial.chosen()} for label, trial in kept.items()]
        }
        named = enumerate(kept.values())
        self._parameters = {f"{at}.{name}": value for at, each in named for name, value in each.parameters.items()}
        scorers = {label: work.scorer_of(trial).cpu() for label, trial in kept.items()}
        unweighted = [label for label, trial in kept.items() if not self.member(trial.member).uses_weights]
        blend = BlendScorer.of(scorers, weights, unweighted)
        if context.validate is not None:
            work.record({"event": "validation", "epoch": 1, **context.validate(blend), "best": True})
        return blend
