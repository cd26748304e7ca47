"""One fit of a blend: every member searched within its share of the time, then the weights.

A budget bounds the time: each member gets its share of what is left, a trained one is given fewer epochs where its
share asks for it, and one that would not get far is left out and named, like one that needs too much memory. Within a
budget a training ends sooner that does not get better, a member that is solved and whose defaults are far behind an
earlier member is not searched, nor are TopKGAT and Rankformer: beside their defaults they only try the regularization
that an earlier member chose, as a multiple of the default.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from rankformer.errors import ConfigError, TrainingError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.base import Model
from rankformer.models.quick_search import quick_search
from rankformer.runs.fitting import check_ranks
from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import BlendScorer
from rankformer.training.context import Event, FitContext, TrainingState, WarmStart

if TYPE_CHECKING:
    from rankformer.models.blend import Blend

AS_THEY_ARE = {"topkgat", "rankformer"}  # not searched within a budget, which iALS's search uses better
WORTH_A_SEARCH = 0.9  # of the best so far: what the defaults of a member that is solved must reach
MEMBERS_SHARE = 0.6  # of the budget; the rest is for weights, evaluation and a refit
FIRST_STAGE = 0.6  # of a member's time; the rest is for the best settings at full fidelity
LEAST_EPOCHS = 0.3  # of a member's epochs; with fewer it is left out
PATIENCE = 3  # validations without a better one that end a member's training within a budget
MOST_OPERATIONS = 6e11  # of a member that is solved: seconds on two cores
FAILURES = (ConfigError, TrainingError, MemoryError)  # of a member, which the blend does without


@dataclass
class Trial:
    """One fit of a member."""

    member: str
    settings: dict[str, Any]  # changes of its defaults
    value: float = 0.0  # on the validation part, 0 without one
    seconds: float = 0.0
    choices: dict[str, Any] = field(default_factory=dict)  # what its own validation chose
    parameters: dict[str, Tensor] = field(default_factory=dict, repr=False)  # of a trained member
    scorer: Scorer | None = field(default=None, repr=False)  # where it is in memory

    def chosen(self) -> dict[str, Any]:
        """Return what a fit needs to make the trial again, as JSON can hold it."""
        return {"member": self.member, "settings": self.settings, "choices": self.choices}

    def record(self) -> dict[str, Any]:
        """Return the trial as JSON can hold it."""
        return {**self.chosen(), "value": self.value, "seconds": self.seconds}


class BlendFit:
    """One fit of a blend: its trials, kept in checkpoints, and its clock."""

    def __init__(self, blend: "Blend", graph: BipartiteGraph, context: FitContext) -> None:
        self.blend, self.graph, self.context, self.settings = blend, graph, context, blend.settings
        self.trials: list[Trial] = []
        self.refused: dict[str, str] = {}
        self.unfinished: tuple[dict[str, Any], list[Event], TrainingState] | None = None  # what a resumed fit was in
        self.started = time.perf_counter()
        state = context.resume_from
        if state is not None:
            self.started -= state.numbers["seconds"]
            self.refused = dict(state.numbers["refused"])
            self.trials = [
                Trial(**record, parameters=state.group(f"trial.{at}."))
                for at, record in enumerate(state.numbers["trials"])
            ]
            running = state.numbers["running"]
            if running is not None:
                inner = TrainingState(state.group("running."), running["numbers"])
                self.unfinished = running["trial"], running["events"], inner

    @property
    def seconds(self) -> float:
        """Seconds of the whole fit, those before a resume among them; all ranks decide by the first one's."""
        return self.graph.ranks.agreed(time.perf_counter() - self.started)

    @property
    def left(self) -> float:
        """Seconds that the budget leaves to members; the rest is for what follows."""
        return math.inf if self.settings.budget is None else MEMBERS_SHARE * self.settings.budget - self.seconds

    def record(self, event: Event) -> None:
        self.context.record({**event, "seconds": round(self.seconds, 3)})

    def pool(self) -> dict[str, Trial]:
        """Return what weights are chosen for, by label: each member at its best, and with its defaults."""
        pool: dict[str, Trial] = {}
        names = self.settings.members
        for at, name in enumerate(names):
            if name in self.refused:  # before a resume
                continue
            try:
                pool |= self.search(name, self.seconds + self.left / (len(names) - at), pool)
            except FAILURES as error:
                self.refused[name] = " ".join(str(error).split()) or type(error).__name__
                self.record({"event": "refused", "member": name, "reason": self.refused[name]})
                self.save()
        if not pool:
            raise TrainingError("no member of the blend could be fitted; " + "; ".join(self.refused.values()))
        return pool

    def search(self, name: str, until: float, pool: Mapping[str, Trial]) -> dict[str, Trial]:
        """Return the best trial of a member, and the one with its defaults where that is another.

        `pool` holds what earlier members came to.
        """
        limits, begun = self.limits(name, until), self.seconds
        method = type(self.blend.member(name))
        finalists: list[Trial] = []  # a cheaper fit is none
        earlier = self.settings.members[: self.settings.members.index(name)]  # a resumed fit has later ones, too
        bar = WORTH_A_SEARCH * max((trial.value for trial in self.trials if trial.member in earlier), default=0.0)

        def value_of(changes: dict[str, Any]) -> float | None:
            is_cheaper, settings = method.fidelity in changes, {**limits, **changes}
            time_up = self.seconds >= (begun + FIRST_STAGE * (until - begun) if is_cheaper else until)
            if time_up and (is_cheaper or finalists) and self.find(name, settings) is None:
                return None
            if method.fidelity is None and finalists and finalists[0].value < bar and until < math.inf:
                return None  # far behind with its defaults
            try:
                trial = self.trial(name, settings)
            except FAILURES:
                if not changes:
                    raise
                return None
            if not is_cheaper:
                finalists.append(trial)
            for other in [trial, *finalists]:
                if other is not max(finalists, key=_value, default=None) and other.settings != limits:
                    other.scorer, other.parameters = None, {}  # frees memory
            return trial.value

        searched = self.settings.tune and (until == math.inf or name not in AS_THEY_ARE)
        if searched and self.context.validate is not None:
            quick_search(method, {**self.settings.member_settings.get(name, {}), **limits}, value_of)
        else:
            value_of({})
            if self.settings.tune and self.context.validate is not None:
                for changes in self.suggested(name, pool):
                    in_time = self.seconds + finalists[0].seconds <= until
                    if in_time or self.find(name, {**limits, **changes}) is not None:
                        value_of(changes)
        best = max(finalists, key=_value)
        defaults = [trial for trial in finalists if trial.settings == limits and trial is not best]
        return {name: best} | {f"{name} (defaults)": trial for trial in defaults}

    def suggested(self, name: str, pool: Mapping[str, Trial]) -> list[dict[str, Any]]:
        """Return the L2 regularization that an earlier member chose, as the same multiple of what suits the density."""
        if "l2" in self.settings.member_settings.get(name, {}):
            return []
        ladder = type(self.blend.member(name)).ladder.get("l2", ())
        chosen = {trial.settings["l2"] for trial in pool.values() if "l2" in trial.settings}
        return [{"l2": l2} for l2 in ladder if l2 in chosen]

    def limits(self, name: str, until: float) -> dict[str, Any]:
        """Return fewer epochs where all of them would take longer than a member may.

        Raises:
            TrainingError: too few would be left.
        """
        model = self.blend.member(name)
        check_ranks(model, self.graph.ranks)
        settings, operations = model.settings, model.operations(self.graph)
        if until < math.inf and operations > MOST_OPERATIONS:
            raise TrainingError(f"{name} needs {operations:.1e} multiply-adds here; budget=none grants them")
        epochs = getattr(settings, "epochs", None)
        if epochs is None or until == math.inf:
            return {}
        begun = [(trial.member, trial.settings) for trial in self.trials]
        if self.unfinished is not None:
            begun.append((self.unfinished[0]["member"], self.unfinished[0]["settings"]))
        for member, changes in begun:  # a resumed fit keeps what it had found
            if member == name:
                given = changes.get("epochs", epochs)  # fewer than the least are a cheap trial's
                return {"epochs": given} if LEAST_EPOCHS * epochs <= given < epochs else {}
        moments = [time.perf_counter()]
        probe = self.blend.member(name, epochs=2, validate_every=2)
        probe.learn(
            self.graph_for(probe), FitContext(self.context.validate, lambda event: moments.append(time.perf_counter()))
        )
        times = [later - earlier for earlier, later in pairwise(moments[1:])]
        each = self.graph.ranks.agreed(times[0] + sum(times[1:]) / settings.validate_every)  # type: ignore[attr-defined]
        possible = int((until - self.seconds) / each)
        if possible < LEAST_EPOCHS * epochs:
            share = max(0, until - self.seconds)
            raise TrainingError(
                f"{name} would take about {epochs * each:.0f} s of the {share:.0f} s that are its share"
            )
        return {} if possible >= epochs else {"epochs": possible}

    def graph_for(self, model: Model) -> BipartiteGraph:
        """Return the interactions as a member counts them."""
        return self.graph if model.uses_weights else self.graph.unweighted()

    def find(self, name: str, settings: dict[str, Any]) -> Trial | None:
        """Return the trial of a member with these settings, None when there was none."""
        return next((trial for trial in self.trials if (trial.member, trial.settings) == (name, settings)), None)

    def trial(self, name: str, settings: dict[str, Any]) -> Trial:
        """Return the trial of a member with these settings, fitted now unless it was before."""
        found = self.find(name, settings)
        if found is not None:
            return found
        trial = Trial(name, settings)
        self.fit(trial)
        self.trials.append(trial)
        self.record({"event": "trial", **trial.record()})
        self.save()
        return trial

    def again(self, record: Mapping[str, Any], at: int) -> Trial:
        """Return member `at` of an earlier fit, fitted with what its validation chose held fixed."""
        trial = Trial(record["member"], dict(record["settings"]), choices=dict(record["choices"]))
        found = self.find(trial.member, trial.settings)
        if found is None:
            self.fit(trial, trial.choices, self.warm(record["label"], at))
            self.trials.append(trial)
            self.save()
        return found or trial

    def warm(self, label: str, at: int) -> WarmStart | None:
        """Return what member `at` of the fit to continue from learned, None without one."""
        if self.context.warm is None:
            return None
        blend = cast(BlendScorer, self.context.warm.scorer)
        parameters = TrainingState(dict(self.context.warm.parameters), {})
        [scorer] = [each.scorer for each in blend.members if each.name == label]
        return WarmStart(parameters.group(f"{at}."), scorer)

    def fit(self, trial: Trial, choices: Mapping[str, Any] | None = None, warm: WarmStart | None = None) -> None:
        """Fit a trial and note what came out of it."""
        started, events, resume = time.perf_counter(), list[Event](), None
        model = self.blend.member(trial.member, **({} if choices else self.patience(trial.member)), **trial.settings)
        if self.unfinished is not None and self.unfinished[0] == trial.record():
            _, events, resume = self.unfinished
        else:
            self.record({"event": "fitting", "member": trial.member, "settings": trial.settings})
        context = FitContext(self.context.validate, events.append, _Nested(self, trial, events), resume, choices, warm)
        trial.scorer = model.learn(self.graph_for(model), context)
        model.log = events
        metric = self.settings.metric
        trial.value = max((event[metric] for event in events if event["event"] == "validation"), default=0.0)
        trial.seconds = round(time.perf_counter() - started, 3)
        trial.choices = dict(choices or model.choices())
        trial.parameters = {name: self.graph.own_rows(values) for name, values in model.parameters().items()}

    def patience(self, name: str) -> dict[str, Any]:
        """Return what ends a member's training sooner, within a budget and unless it is given."""
        is_trained = "patience" in type(self.blend.member(name)).settings_class.model_fields
        is_given = "patience" in self.settings.member_settings.get(name, {})
        return {"patience": PATIENCE} if is_trained and not is_given and self.settings.budget is not None else {}

    def scorer_of(self, trial: Trial) -> Scorer:
        """Return the scorer of a trial, made again where a resumed fit does not have it."""
        if trial.scorer is None:
            model = self.blend.member(trial.member, **trial.settings)
            best = {f"best.{name}": values for name, values in trial.parameters.items()}
            trial.scorer = model.best_scorer(self.graph_for(model), TrainingState(best, {}))
            if trial.scorer is None:
                trial.scorer = model.learn(self.graph_for(model), FitContext(choices=trial.choices))
        return trial.scorer

    def weigh(self, pool: dict[str, Trial]) -> dict[str, float]:
        """Return the weight of each entry of the pool, chosen on the validation part; equal ones without it."""
        if self.context.weigh is None:
            return dict.fromkeys(pool, 1 / len(pool))
        self.record({"event": "weighing", "members": list(pool)})
        found = self.context.weigh([self.scorer_of(trial) for trial in pool.values()])
        members = [
            {"label": label, "weight": weight, "without": without, "alone": alone, **trial.record()}
            for (label, trial), weight, without, alone in zip(
                pool.items(), found.weights, found.without, found.alone, strict=True
            )
        ]
        self.record({"event": "blend", "value": found.value, "members": members, "refused": self.refused})
        return dict(zip(pool, found.weights, strict=True))

    def save(self, running: "_Nested | None" = None, state: TrainingState | None = None) -> None:
        """Write a checkpoint: the trials so far, and the state and events of the one that runs."""
        if self.context.checkpoints is None:
            return
        tensors = {
            f"trial.{at}.{name}": values
            for at, trial in enumerate(self.trials)
            for name, values in trial.parameters.items()
        }
        numbers: dict[str, Any] = {"epoch": len(self.trials), "seconds": self.seconds, "refused": self.refused}
        numbers["running"] = None
        if running is not None and state is not None:
            tensors |= {f"running.{name}": values for name, values in state.tensors.items()}
            numbers["running"] = {
                "trial": running.trial.record(),
                "events": running.events,
                "numbers": state.numbers,
            }
        numbers["trials"] = [trial.record() for trial in self.trials]
        self.context.checkpoints.save(len(self.trials), TrainingState(tensors, numbers))


def _value(trial: Trial) -> float:
    return trial.value


@dataclass(frozen=True)
class _Nested:
    """Where a member that is trained keeps its state: inside the blend's checkpoint."""

    work: BlendFit
    trial: Trial
    events: list[Event]

    def save(self, epoch: int, state: TrainingState) -> None:
        del epoch
        self.work.save(self, state)
