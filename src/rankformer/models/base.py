"""The contract of every model: fit, recommend, similar_items, save, load."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, RunFolderError
from rankformer.evaluation.evaluator import Evaluation
from rankformer.evaluation.protocol import installed_versions
from rankformer.evaluation.validator import make_validator
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.device import choose_device
from rankformer.models.networks import TableNetwork as TableNetwork
from rankformer.models.networks import TrainedNetwork
from rankformer.runs.checkpoint import CheckpointStore
from rankformer.runs.run import Run, is_run, load_run, save_run
from rankformer.runs.training_log import RunLog
from rankformer.scoring.aspect_scorer import AspectScorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.explanation import Explanation
from rankformer.scoring.fold_in import FoldIn
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.recommendations import Recommendations
from rankformer.scoring.recommender import Recommender
from rankformer.settings import Settings
from rankformer.training.settings import TrainingSettings
from rankformer.training.trainer import Event, train


@dataclass(frozen=True)
class Workplace:
    """Where a fit writes while it runs.

    Attributes:
        log: takes the events.
        folder: run folder for checkpoints, or None to keep none.
        resume: whether to go on from the folder's checkpoint.
    """

    log: RunLog
    folder: Path | None = None
    resume: bool = False


class Learned(NamedTuple):
    """What a method hands over after learning.

    Attributes:
        scorer: final vectors of the training users and of the items, or histories and weights between items, or
            several latents for each.
        fold_in: how vectors of other users come from their histories, None where there is no such rule or no vector.
    """

    scorer: Embeddings | ItemScorer | AspectScorer
    fold_in: FoldIn | None = None


class Model(ABC):
    """A method with its settings; after `fit` it answers.

    Attributes:
        name: how the method is called on the command line.
        paper: where it was published.
        settings_class: its knobs.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    settings_class: ClassVar[type[Settings]]

    def __init__(self, *, seed: int = 0, device: str = "cpu", **settings: Any) -> None:
        self.settings = self.settings_class(**settings)
        self.seed = seed
        self.device = choose_device(device)
        self.log: list[Event] = []
        self._recommender: Recommender | None = None

    def __repr__(self) -> str:
        changed = self.settings.model_dump(exclude_defaults=True)
        arguments = ", ".join(f"{name}={value!r}" for name, value in {**changed, "seed": self.seed}.items())
        return f"{type(self).__name__}({arguments}){'' if self._recommender else ', not fitted'}"

    @abstractmethod
    def learn(self, train: Interactions, valid: Interactions | None, place: Workplace) -> Learned:
        """Return what is learned from the training part; `valid` may choose when to stop."""

    def fit(
        self,
        train: Interactions,
        valid: Interactions | None = None,
        *,
        run_folder: str | PathLike[str] | None = None,
        resume: bool = False,
        on_event: Callable[[Event], None] | None = None,
    ) -> Self:
        """Learn from the training part and return the model itself.

        Args:
            train: pairs to learn from.
            valid: pairs that decide when to stop, over the same id maps; empty counts as none.
            run_folder: where log and checkpoints go while training; without it nothing is written.
            resume: go on from the checkpoint in `run_folder`, if there is one.
            on_event: called with each log event, for progress displays.
        """
        folder = Path(run_folder) if run_folder is not None else None
        if folder is not None and is_run(folder):
            raise RunFolderError(f"{folder} already holds a finished run; choose another folder, or remove it first")
        log = RunLog(folder / "log.jsonl" if folder else None, on_event)
        if valid is not None and len(valid) == 0:
            valid = None
        learned = self.learn(train, valid, Workplace(log, folder, resume))
        scorer = learned.scorer
        if isinstance(scorer, Embeddings):
            scorer = Embeddings(scorer.users.detach().cpu(), scorer.items.detach().cpu())
        elif isinstance(scorer, AspectScorer):
            scorer = scorer.cpu()
        self._recommender = Recommender(scorer, train.user_ids, train.item_ids, train, fold_in=learned.fold_in)
        self.log = log.events
        return self

    @property
    def recommender(self) -> Recommender:
        """What answers, once the model is fitted."""
        if self._recommender is None:
            raise ConfigError(f"{type(self).__name__} is not fitted; call fit(train) or load(folder) first")
        return self._recommender

    @property
    def embeddings(self) -> Embeddings:
        """The final user and item vectors."""
        return self.recommender.embeddings

    def recommend(
        self,
        users: Sequence[Any] | None = None,
        k: int = 10,
        *,
        histories: Mapping[Any, Sequence[Any]] | None = None,
        **options: Any,
    ) -> Recommendations:
        """Return top-k lists for raw user ids (all users by default), or for users who are only histories.

        See `Recommender.recommend` and `Recommender.recommend_histories` for the options and the errors.
        """
        if histories is None:
            return self.recommender.recommend(users, k, **options)
        if users is not None:
            raise ConfigError("users and histories are two ways of asking; call recommend once for each")
        return self.recommender.recommend_histories(histories, k, **options)

    def explain(self, user: Any, item: Any) -> Explanation:
        """Return a user's score for an item as a sum over the user's history: see `Recommender.explain`."""
        return self.recommender.explain(user, item)

    def similar_items(self, item: Any, k: int = 10) -> Recommendations:
        """Return the k items most similar to a raw item id: see `Recommender.similar_items`."""
        return self.recommender.similar_items(item, k)

    def parameters(self) -> dict[str, Tensor]:
        """Return what was learned, by name; empty for methods that have nothing beyond the embeddings."""
        return {}

    def save(
        self, folder: str | PathLike[str], *, data: dict[str, Any] | None = None, evaluation: Evaluation | None = None
    ) -> None:
        """Write the fitted model as a run folder.

        Args:
            folder: made if missing; a run already there is replaced.
            data: where the data came from, for the manifest.
            evaluation: of the test part, for the manifest.
        """
        save_run(
            Path(folder),
            Run(
                model=self.name,
                settings=self.settings.model_dump(mode="json"),
                seed=self.seed,
                recommender=self.recommender,
                parameters=self.parameters(),
                log=self.log,
                data=data or {"train_fingerprint": self.recommender.history.fingerprint},
                metrics=evaluation.metrics if evaluation else {},
                protocol=evaluation.protocol.to_dict() if evaluation else {},
                versions=installed_versions(),
            ),
        )

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the model saved in a run folder, every byte of it checked."""
        run = load_run(Path(folder))
        if run.model != cls.name:
            raise RunFolderError(f"{folder} holds a {run.model} model, not {cls.name}; use rankformer.load_model")
        return cls.from_run(run)

    @classmethod
    def from_run(cls, run: Run) -> Self:
        """Return the model that a loaded run describes."""
        cls.settings_class.model_validate(run.settings)  # refuses names that are arguments but no settings
        model = cls(seed=run.seed, **run.settings)
        model._recommender, model.log = run.recommender, run.log
        model.restore(run.parameters)
        return model

    def restore(self, parameters: dict[str, Tensor]) -> None:
        """Take back what `parameters` returned."""
        del parameters


class TrainedModel(Model):
    """A model trained by the one training loop."""

    settings: TrainingSettings
    settings_class: ClassVar[type[TrainingSettings]]

    @abstractmethod
    def network_for(self, num_users: int, num_items: int) -> TrainedNetwork:
        """Return the untrained network."""

    def start(self, graph: BipartiteGraph) -> TrainedNetwork:
        """Return the network that training starts from."""
        return self.network_for(graph.num_users, graph.num_items)

    def learn(self, train_part: Interactions, valid: Interactions | None, place: Workplace) -> Learned:
        """Return the embeddings of the best validation, or of the last epoch without a validation part."""
        graph = BipartiteGraph.from_interactions(train_part, self.device)
        self._network = self.start(graph)
        self._network.to(self.device)
        validate = make_validator(train_part, valid, self.settings.metric) if valid is not None else None
        store, state = None, None
        if place.folder is not None:
            identity = {
                "model": self.name,
                "settings": self.settings.model_dump(mode="json"),
                "seed": self.seed,
                "train": train_part.fingerprint,
                "valid": valid.fingerprint if valid is not None else None,
            }
            store = CheckpointStore(place.folder / "checkpoint", identity)
            if not place.resume:
                store.remove()
            state = store.load()
            place.log.rewind(state[1]["log_events"] if state else 0)
        train(
            self._network,
            graph,
            self.settings,
            seed=self.seed,
            validate=validate,
            on_event=place.log.append,
            store=store,
            resume_from=state,
            extra_numbers=lambda: {"log_events": place.log.sync()},
        )
        with torch.no_grad():
            return Learned(self._network.embeddings(graph), self._network.fold_in(graph))

    def parameters(self) -> dict[str, Tensor]:
        """Return the network's parameters at the best validation."""
        return dict(self._network.state_dict())

    def restore(self, parameters: dict[str, Tensor]) -> None:
        """Take back the network's parameters."""
        recommender = self.recommender
        self._network = self.network_for(len(recommender.user_ids), len(recommender.item_ids))
        try:
            self._network.load_state_dict(parameters)
        except RuntimeError as error:
            raise RunFolderError(f"the stored parameters do not fit a {self.name} network: {error}") from error


class GradientModel(TrainedModel):
    """A trained model with a table of a row per node, users and items alike."""

    @abstractmethod
    def build(self, num_nodes: int) -> TableNetwork:
        """Return the untrained network."""

    def initialise(self, network: TableNetwork, graph: BipartiteGraph) -> None:
        """Set the parameters that training starts from; the network's own random start by default."""

    def network_for(self, num_users: int, num_items: int) -> TableNetwork:
        """Return the untrained network."""
        return self.build(num_users + num_items)

    def start(self, graph: BipartiteGraph) -> TableNetwork:
        """Return the network that training starts from."""
        network = self.build(graph.num_nodes)
        self.initialise(network, graph)
        return network
