"""Every error this package raises on purpose, in one tree.

    RankformerError
    ├── UserError                what was asked or given is wrong; the caller can fix it (exit code 2)
    │   ├── DataError            an interaction log, table or split that cannot be used
    │   │   └── AbsentDataError  the files of a named dataset were not found
    │   ├── ConfigError          a setting, flag or argument outside its range, or unknown
    │   │   └── FilterError      an expression over attributes that cannot be read, or does not fit them
    │   ├── UnknownIdError       a user or item that the model does not know
    │   ├── NotSupportedError    something that the method at hand cannot do
    │   ├── RunFolderError       a run folder that is missing, damaged or belongs to something else
    │   └── DownloadError        a file that could not be fetched or is not the one expected
    ├── TrainingError            training could not continue, for example a loss that is not finite (exit code 1)
    └── RankError                another rank of a distributed run has ended or does not answer (exit code 1)

Each message says what was found, what was expected and what to do, in one line. What is only worth knowing is a
warning: `IgnoredWeightsWarning`.
"""

import errno
from importlib import import_module
from typing import Any

# torch; and Arrow and Python, where there is no room for the stack of another thread.
_OUT_OF_MEMORY = ("can't allocate memory", "Failed to launch worker thread", "can't start new thread")


class RankformerError(Exception):
    """Base of every deliberate error of the package."""


class UserError(RankformerError, ValueError):
    """Something the caller can fix."""


class DataError(UserError):
    """An interaction log, table or split that cannot be used."""


class AbsentDataError(DataError):
    """The files of a named dataset were not found."""


class ConfigError(UserError):
    """A setting, flag or argument that is unknown or outside its range."""


class FilterError(ConfigError):
    """An expression over the attributes of items that cannot be read, or does not fit them."""


class UnknownIdError(UserError):
    """A user or item that the model does not know."""


class NotSupportedError(UserError):
    """Something that the method at hand cannot do."""


class RunFolderError(UserError):
    """A run folder that is missing, damaged, or belongs to something else."""


class DownloadError(UserError):
    """A file that could not be fetched, or is not the one expected."""


class TrainingError(RankformerError):
    """Training could not continue, for example because a loss is not finite."""


class RankError(RankformerError):
    """Another rank of a distributed run has ended, or does not answer in time."""


class IgnoredWeightsWarning(UserWarning):
    """The interactions have weights, and the method at hand cannot use them."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised in place of, means too little memory, as each library says it."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if any(words in str(error) for words in _OUT_OF_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def extra_module(module: str, extra: str) -> Any:
    """Return a module that comes with one of the package's extras, or say which in a ConfigError."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"this needs {module}, which is missing: pip install 'rankformer[{extra}]'") from error
