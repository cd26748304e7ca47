"""`TrainedModel`: a model whose network is trained by the one training loop."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rankformer.errors import RunFolderError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.base import Model
from rankformer.models.tuned_training import searched
from rankformer.runs.training_log import history_of
from rankformer.scoring.base import Scorer
from rankformer.training.context import FitContext, TrainingState
from rankformer.training.network import Network
from rankformer.training.settings import TrainingSettings
from rankformer.training.trainer import train

EARLY = 0.2  # of the epochs of a training; one whose best epoch was earlier is begun again by an update
UPDATE_EPOCHS = 0.1  # of the epochs that validation chose, when a fit continues an earlier one
UPDATE_LEARNING_RATE = 0.1  # of the learning rate, which then falls by cosine decay


class TrainedModel(Model):
    """A model trained by gradient."""

    network_class: ClassVar[type[Network]]  # what is trained; called with numbers of users and items, and settings
    settings_class: ClassVar[type[TrainingSettings]]
    settings: TrainingSettings
    fidelity = "epochs"

    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer:
        """Return the scorer of the best validation, or of the last epoch without a validation part.

        A fit that follows an earlier one continues from its parameters in a short training, unless the best epoch of
        that one came early: more epochs would overfit.
        """
        settings, context = searched(self, graph, context)
        chosen, warm = settings, context.warm
        self.network = self.network_class(graph.num_users, graph.num_items, settings)
        if warm is not None and warm.parameters and not self.stopped_early(context.choices or {}):
            self.network.to(self.device).continue_from(graph, warm)
            settings, context = self.update_settings(context.choices or {}), replace(context, choices=None)
        elif context.resume_from is None:
            self.network.initialize(graph)
        self.network.to(self.device)
        train(self.network, graph, settings, context)
        self.settings = chosen
        with torch.no_grad():
            return self.network.final_scorer(graph)

    def stopped_early(self, choices: Mapping[str, Any]) -> bool:
        """Whether the best epoch of the training that chose was one of its first."""
        best, settings = int(choices.get("epochs") or self.settings.epochs), self.settings
        return best <= EARLY * min(settings.epochs, best + settings.patience * settings.validate_every)

    def update_settings(self, choices: Mapping[str, Any]) -> TrainingSettings:
        """Return the settings of a short training that continues an earlier one."""
        epochs = math.ceil(UPDATE_EPOCHS * int(choices.get("epochs") or self.settings.epochs))
        rate = UPDATE_LEARNING_RATE * self.settings.learning_rate
        return self.settings.model_copy(update={"epochs": epochs, "learning_rate": rate, "schedule": "cosine"})

    def best_scorer(self, graph: BipartiteGraph, state: TrainingState) -> Scorer | None:
        if not (best := state.group("best.")):
            return None
        settings, _ = searched(self, graph, FitContext(resume_from=state))
        network = self.network_class(graph.num_users, graph.num_items, settings)
        network.load_own(graph, best)
        with torch.no_grad():
            return network.to(self.device).final_scorer(graph)

    def choices(self) -> dict[str, Any]:
        """Return the number of epochs until the best validation."""
        return {"epochs": history_of(self.log).best_epoch}

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def restore(self, parameters: dict[str, Tensor]) -> None:
        scorer = self.recommender.scorer
        self.network = self.network_class(scorer.num_users, scorer.num_items, self.settings)
        try:
            self.network.load_state_dict(parameters)
        except RuntimeError as error:
            raise RunFolderError(f"the stored parameters do not fit a {self.name} network: {error}") from error
