"""A search kept in a database too, as an optuna study: other tools can show it, and another machine can continue it.

The study is named after what is searched, so that the same command finds it again and another search has its own. A
trial carries everything that `study.json` holds of it, as JSON; nothing is pickled.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from rankformer.data.readers.sql import without_secrets
from rankformer.errors import ConfigError, RunFolderError
from rankformer.tuning.objective import Trial
from rankformer.tuning.space import Space
from rankformer.tuning.strategy import frozen

_ATTRIBUTE = "rankformer"
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


class Storage:
    """The trials of one search in a database.

    Attributes:
        place: the address without its password and parameters, for messages.
    """

    def __init__(self, address: str, identity: dict[str, Any], name: str, space: Space) -> None:
        """Open the search in a database, new or as far as it came.

        Args:
            address: such as sqlite:///search.db or postgresql://user@host/database.
            identity: what makes the search the one it is.
            name: what people call it.
            space: what varies.

        Raises:
            ConfigError: the address is none, or the database cannot be used.
        """
        try:
            url = make_url(address)
        except (ArgumentError, ValueError):  # a port that is no number
            url = None
        if url is None or url.get_backend_name() not in ("sqlite", "postgresql", "postgres", "mysql"):
            raise ConfigError("--storage: expected sqlite:///FILE or postgresql://user@host/database")
        # Parameters may be secret too, and so is what an @ in a password that was not escaped makes part of the host.
        public = url.set(query={}, host=url.host and url.host.rpartition("@")[2])
        self.place = public.render_as_string(hide_password=True)
        self._secrets = url.set(drivername="sql").render_as_string(hide_password=False)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        driver = _DRIVERS.get(url.drivername, url.drivername)
        with self._reporting():
            self.study = optuna.create_study(
                storage=optuna.storages.RDBStorage(
                    url.set(drivername=driver).render_as_string(hide_password=False),
                    engine_kwargs={"poolclass": NullPool},  # nothing stays open between trials
                ),
                study_name=f"{name} {digest[:12]}",
                direction="maximize",
                load_if_exists=True,
            )
            self.study.set_user_attr(_ATTRIBUTE, identity)
        self.space = space

    def trials(self) -> list[Trial]:
        """Return the trials in the database, in order."""
        with self._reporting():
            found = [each.user_attrs.get(_ATTRIBUTE) for each in self.study.get_trials(deepcopy=False)]
        return [Trial.from_json(content) for content in found]

    def add(self, trials: Sequence[Trial]) -> None:
        """Add the trials that the database lacks, after making sure that those it has are the same.

        Raises:
            RunFolderError: it has others, of another process or folder.
        """
        there = self.trials()
        if [each.to_json() for each in there] != [each.to_json() for each in trials[: len(there)]]:
            raise RunFolderError(f"{self.place} has other trials of this search than --out; wait, or use another --out")
        with self._reporting():
            for trial in trials[len(there) :]:
                self.study.add_trial(frozen(trial, self.space, {_ATTRIBUTE: trial.to_json()}))

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn what a database reports into one line without its password."""
        try:
            yield
        except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, OSError) as error:
            cause = without_secrets(getattr(error, "orig", None) or error.__cause__ or error, self._secrets)
            raise ConfigError(
                f"--storage {self.place} cannot be used: {cause}; check the address and that the database is up"
            ) from None
