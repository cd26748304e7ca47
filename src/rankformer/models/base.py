"""The contract of every model: fit, recommend, explain, similar_items, save, load; and its facts."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from rankformer.errors import ConfigError, RunFolderError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.runs.fitting import ItemData, TrainingData, fit, interactions_of
from rankformer.runs.progress import fit_progress
from rankformer.runs.saved import Run, load_run, save_run
from rankformer.scoring.base import Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.explanation import Explanation
from rankformer.scoring.options import ListFilters
from rankformer.scoring.recommendations import Recommendations
from rankformer.scoring.recommender import Recommender
from rankformer.settings import ModelSettings
from rankformer.training.context import Event, FitContext, TrainingState, WarmStart

P = ParamSpec("P")


class Model(ABC):
    """A method with its hyperparameters; once fitted it recommends.

    Attributes:
        name: of the method on the command line.
        title: of the method in tables.
        paper: where it was published.
        settings_class: its hyperparameters; their names are the arguments of the constructor.
        deterministic: whether the seed changes nothing but rounding.
        personalized: whether lists differ between users.
        has_vectors: whether scores are inner products of embeddings; None where that depends on the members.
        uses_weights: whether the weights of interactions count; a fit to weighted interactions warns where not.
        on_ranks: whether several ranks can fit it together.
        most_validation_users: how many users a validation looks at, a random sample; None for all.
        ladder: the few hyperparameters that matter most, each with a few values: what quick tuning tries.
        late_ladder: the same for those that make a fit dearer: tried one by one, while
            each brings a few per cent.
        fidelity: the hyperparameter that makes a fit cheaper when it is lowered, None without one.
        search_space: what `tune` searches besides the learning rate and L2 regularization: a range
            {"low": .., "high": .., "log": ..} or a list of choices for each hyperparameter.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    settings_class: ClassVar[type[ModelSettings]]
    deterministic: ClassVar[bool] = False
    personalized: ClassVar[bool] = True
    has_vectors: ClassVar[bool | None] = True
    uses_weights: ClassVar[bool] = False
    on_ranks: bool = False
    most_validation_users: ClassVar[int | None] = None
    ladder: ClassVar[Mapping[str, Sequence[Any]]] = {}
    late_ladder: ClassVar[Mapping[str, Sequence[Any]]] = {}
    fidelity: ClassVar[str | None] = None
    search_space: ClassVar[Mapping[str, Any]] = {}

    settings: ModelSettings

    def __init__(self, **settings: Any) -> None:
        self.settings = self.settings_class(**settings)
        self.device = choose_device(self.settings.device)
        self.log: list[Event] = []
        self._recommender: Recommender | None = None

    @staticmethod
    def takes(settings_class: Callable[P, ModelSettings]) -> Callable[[Any], Callable[Concatenate[Any, P], None]]:
        """Return a decorator that gives the constructor of a model these settings, for type checkers too."""

        def declare(constructor: Any) -> Callable[Concatenate[Any, P], None]:
            constructor.settings_class = settings_class
            return cast(Callable[Concatenate[Any, P], None], constructor)

        return declare

    def __init_subclass__(cls) -> None:
        declared = getattr(vars(cls).get("__init__"), "settings_class", None)
        if declared is not None:
            cls.settings_class = declared
        if "settings_class" in vars(cls):  # what `help` and completion show
            fields = cls.settings_class.model_fields.items()
            cls.__signature__ = Signature(  # type: ignore[attr-defined]
                [
                    Parameter(name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.annotation)
                    for name, f in fields
                ]
            )

    def __repr__(self) -> str:
        changed = self.settings.model_dump(exclude_defaults=True, exclude={"seed", "device"})
        arguments = ", ".join(f"{name}={value!r}" for name, value in {**changed, "seed": self.seed}.items())
        return f"{type(self).__name__}({arguments}){'' if self._recommender else ', not fitted'}"

    @property
    def seed(self) -> int:
        """Decides every random draw."""
        return self.settings.seed

    @property
    def searched(self) -> set[str]:
        """The hyperparameters that a fit chooses on the validation part: the few that matter, unless they are given."""
        tunes = getattr(self.settings, "tune", False)
        return {*self.ladder, *self.late_ladder} - self.settings.model_fields_set if tunes else set()

    @abstractmethod
    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer:
        """Return the scorer learned from the training interactions.

        Args:
            graph: the training interactions.
            context: how to validate, where events and checkpoints go.
        """

    def fit(
        self,
        train: Any,
        valid: Any = None,
        *,
        run_folder: str | PathLike[str] | None = None,
        resume: bool = False,
        on_event: Callable[[Event], None] | None = None,
        choices: Mapping[str, Any] | None = None,
        warm: WarmStart | None = None,
        verbose: bool | None = None,
        **columns: Any,
    ) -> Self:
        """Learn from the training part and return the model itself.

        Args:
            train: interactions to learn from: `Interactions`, a pandas or polars frame, or whatever else
                `Interactions.of` takes.
            valid: interactions that choose the best epoch, of the same kind; empty counts as none.
            run_folder: where training log and checkpoints go; without it nothing is written.
            resume: continue from the checkpoint in `run_folder`, if there is one.
            on_event: called with each event of the training log, for progress displays.
            choices: what the validation of an earlier fit chose, held fixed: see `refitted`.
            warm: what an earlier fit learned, to continue from: see `updated`.
            verbose: whether to show progress; by default in a terminal or a notebook, unless `on_event` is given.
            **columns: of a frame or table: user=, item=, time=, weight=, title= (guessed by name without them), event=
                and event_weights=.
        """
        train, *rest = interactions_of([train] if valid is None else [train, valid], **columns)
        valid = rest[0] if rest else None
        if not valid and choices is None and train.block is None:
            choices = self.choices_without(train, verbose, on_event)
        options: dict[str, Any] = {"folder": Path(run_folder) if run_folder is not None else None, "resume": resume}
        with fit_progress(self.settings, bool(valid), verbose, on_event) as tell:
            self._recommender, self.log = fit(self, train, valid, **options, on_event=tell, choices=choices, warm=warm)
        return self

    def choices_without(
        self, train: TrainingData, verbose: bool | None, on_event: Callable[[Event], None] | None
    ) -> Mapping[str, Any] | None:
        """Return what a fit without a validation part holds fixed; None where there is nothing to choose."""
        del train, verbose, on_event
        return None

    def choices(self) -> dict[str, Any]:
        """Return what the validation of the fit chose, as JSON can hold it; a fit given these chooses nothing.

        A method that chooses more than its parameters overrides this, and reads `context.choices` in `learn`.
        """
        return {}

    def refitted(self, log: TrainingData, **options: Any) -> Self:
        """Return a model with the same settings learned from other interactions, usually all that are known.

        What validation chose in this model's fit is held fixed, so that no validation part is needed. Options are those
        of `fit`.
        """
        return type(self)(**self.settings.model_dump()).fit(log, choices=self.choices(), **options)

    def updated(self, *new: Any, verbose: bool | None = None, on_event: Any = None, **columns: Any) -> Self:
        """Return a model that has also learned from new interactions, in a fraction of the time of a fit.

        New users and items join. A method with an embedding table or factors continues from its own in a short
        training, any other is solved anew; what validation chose in the first fit is held fixed. Titles and attributes
        of items are kept. This model does not change. Given are the interactions since the last fit or update, one log
        or several with ids as in the log of this model, and arguments as for `fit`.
        """
        old = self.recommender
        log = old.history
        for part in filter(len, interactions_of(new, **columns)):
            log = log.extended(part if self.uses_weights else replace(part, weights=None, half_life=None))
        model = type(self)(**self.settings.model_dump())
        if len(log) > len(old.history):
            warm = WarmStart(self.parameters(), old.scorer)
            model.fit(log, choices=self.choices(), warm=warm, verbose=verbose, on_event=on_event)
        else:
            model._recommender = replace(old, history=log, known=log)
            model.restore(self.parameters())
        model.log = self.log
        fitted = model.recommender.history
        rest = old.known.rows(np.arange(len(old.history), len(old.known)))  # known, and not fitted
        pairs: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in (fitted, rest)]) for name in ("users", "items")
        }
        known = replace(fitted, **pairs, weights=None) if len(rest) else fitted
        model._recommender = replace(model.recommender, known=known)
        return model if old.items is None else model.use_items(old.items)

    @property
    def is_fitted(self) -> bool:
        """Whether the model was fitted or loaded, and so can answer."""
        return self._recommender is not None

    @property
    def recommender(self) -> Recommender:
        """The recommender of the fitted model."""
        if self._recommender is None:
            raise ConfigError(f"{type(self).__name__} is not fitted; call fit(train) or load(folder) first")
        return self._recommender

    @property
    def embeddings(self) -> Embeddings:
        """The final user and item embeddings."""
        return self.recommender.embeddings

    def recommend(
        self,
        users: Sequence[Any] | None = None,
        k: int = 10,
        *,
        histories: Mapping[Any, Sequence[Any]] | None = None,
        **options: Any,
    ) -> Recommendations:
        """Return top-k lists for raw user ids (all users by default), or for new users given by their histories.

        With `extend=True` the names of the histories are user ids, and the items are new ones of theirs.
        See `Recommender.recommend` and `Recommender.recommend_histories` for the options and the errors.
        """
        if histories is None:
            return self.recommender.recommend(users, k, **options)
        if users is not None:
            raise ConfigError(
                "users and histories cannot be given together; histories={user: new items} with extend=True is "
                "for known users who have new items"
            )
        return self.recommender.recommend_histories(histories, k, **options)

    def explain(self, user: Any = None, item: Any = None, *, history: Sequence[Any] | None = None) -> Explanation:
        """Return the score of an item as a sum over a user's history, or a new user's: see `Recommender.explain`."""
        return self.recommender.explain(user, item, history=history)

    def similar_items(self, item: Any, k: int = 10, **filters: Unpack[ListFilters]) -> Recommendations:
        """Return the k items most similar to a raw item id: see `Recommender.similar_items`."""
        return self.recommender.similar_items(item, k, **filters)

    def use_items(self, items: ItemData) -> Self:
        """Take titles and attributes of items (`rankformer.Items`) into the fitted model, and return the model itself.

        Lists show and filter by them, and items without interactions join by their attributes.
        """
        self._recommender = self.recommender.with_items(items)
        return self

    def operations(self, graph: BipartiteGraph) -> float:
        """Return about how many multiply-adds a fit needs, where these grow faster than the data; else 0."""
        del graph
        return 0.0

    def parameters(self) -> dict[str, Tensor]:
        """Return what was learned, by name; empty for methods that have nothing beyond the scorer."""
        return {}

    def restore(self, parameters: dict[str, Tensor]) -> None:
        """Take back what `parameters` returned."""
        del parameters

    def best_scorer(self, graph: BipartiteGraph, state: TrainingState) -> Scorer | None:
        """Return the scorer of the best validation in the state of a training that failed; None without one."""
        del graph, state
        return None

    def save(
        self,
        folder: str | PathLike[str],
        *,
        data: dict[str, Any] | None = None,
        evaluation: Any = None,
        known: TrainingData | None = None,
        refit: dict[str, Any] | None = None,
        update: dict[str, Any] | None = None,
    ) -> None:
        """Write the fitted model as a run folder, and remove the checkpoint of its training from it.

        Args:
            folder: made if missing; a run already there is replaced.
            data: where the data came from, for the manifest.
            evaluation: an `Evaluation` of the test part, for the manifest.
            known: every known interaction, which lists leave out; what was fitted by default.
            refit: for a model that was refitted, what on; `evaluation` is then of the model before that.
            update: for a model that was updated, from what and by what: see `rankformer.runs.sequence.update_run`.
        """
        run = Run(
            model=self.name,
            settings=self.settings.hyperparameters(),
            seed=self.seed,
            recommender=self.recommender if known is None else replace(self.recommender, known=known),
            parameters=self.parameters(),
            log=self.log,
            data=data or {"train_fingerprint": self.recommender.history.fingerprint},
            metrics=evaluation.metrics if evaluation else {},
            warm_metrics=evaluation.warm_metrics if evaluation else {},
            protocol=evaluation.protocol.to_dict() if evaluation else {},
            lists=evaluation.lists if evaluation else None,
            refit=refit,
            update=update,
        )
        save_run(Path(folder), run)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the model saved in a run folder, every byte of it checked."""
        run = load_run(Path(folder))
        if run.model != cls.name:
            raise RunFolderError(f"{folder} holds a {run.model} model, not {cls.name}; use rankformer.load_model")
        return cls.from_run(run)

    @classmethod
    def from_run(cls, run: Run, device: str = "cpu") -> Self:
        """Return the model that a loaded run describes; an update computes on the device."""
        unknown = run.settings.keys() - cls.settings_class.hyperparameter_fields().keys()
        if unknown:
            raise RunFolderError(f"the run has a setting {min(unknown)!r}, which {cls.name} does not have")
        model = cls(seed=run.seed, device=device, **run.settings)
        model._recommender, model.log = run.recommender, run.log
        model.restore(run.parameters)
        return model


def choose_device(name: str) -> torch.device:
    """Return the device of a name such as cpu, cuda or cuda:1; auto takes CUDA when present."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device={name!r} is not a device; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}: no CUDA device is present; use cpu or auto")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device={name!r} is not supported; use auto, cpu or cuda")
    return device
