"""Settings of the service: its limits, its tokens, and where it may listen."""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from rankformer.errors import ConfigError
from rankformer.settings import Settings

TOKEN_VARIABLE = "RANKFORMER_TOKEN"
ADMIN_TOKEN_VARIABLE = "RANKFORMER_ADMIN_TOKEN"
MIN_TOKEN_LENGTH = 16


class ServiceSettings(Settings):
    """Limits of the service; every one of them bounds memory, time or the size of an answer."""

    max_k: int = Field(default=1000, ge=1)
    """Longest list that may be requested."""
    max_users: int = Field(default=1000, ge=1)
    """Most users in one batch."""
    max_batch_items: int = Field(default=100_000, ge=1)
    """Most items in all lists of one batch together: users times k."""
    max_history: int = Field(default=1000, ge=1)
    """Most items in the history of a new user."""
    max_filter: int = Field(default=2**20, ge=1)
    """Most ids in an allow or block list; by default the body is what bounds them, by its size and its values."""
    max_listed: int = Field(default=1000, ge=1)
    """Most entries of a search or of a user's history in one answer."""
    max_body_bytes: int = Field(default=2**20, ge=1)
    """Largest request body."""
    max_json_depth: int = Field(default=8, ge=1)
    """Deepest nesting of a JSON body."""
    body_timeout: float = Field(default=10.0, gt=0)
    """Seconds within which a request body must have arrived."""
    request_timeout: float = Field(default=30.0, gt=0)
    """Seconds within which an answer must be found."""
    max_in_flight: int = Field(default=1024, ge=1)
    """Most requests at once; the next ones are rejected."""
    max_connections: int = Field(default=4096, ge=1)
    """Most connections at once, as far as the limit of open files allows; then those that wait longest are closed."""
    header_timeout: float = Field(default=10.0, gt=0)
    """Seconds within which a new connection must have sent the head of a request."""
    keep_alive: float = Field(default=30.0, gt=0)
    """Seconds for which a connection may wait for another request."""
    write_timeout: float = Field(default=10.0, gt=0)
    """Seconds within which a caller must have read what was sent, some 50 kB, before more is."""
    max_answer_bytes: int = Field(default=2**26, ge=1)
    """Most bytes of large answers that wait to be read; the next ones are rejected."""
    batching: bool = True
    """Whether requests for single users that wait at the same time are answered together."""
    batch_size: int = Field(default=64, ge=1)
    """Most single users answered together."""
    queue_size: int = Field(default=256, ge=1)
    """Most single users waiting to be answered; the next ones are rejected."""
    workers: int = Field(default=2, ge=1)
    """Threads for everything but batched single users."""
    waiting: int = Field(default=32, ge=0)
    """Most calls waiting for such a thread; the next ones are rejected."""
    retry_after: int = Field(default=1, ge=1)
    """Seconds after which a rejected request may be repeated."""
    access_log: bool = True
    """Whether each request is logged."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides those of this machine under which a service without a token may be addressed."""
    items: Path | None = None
    """File with titles and attributes of items, in place of those in the run; read at each load."""
    item_sets: dict[str, Path] = Field(default={})
    """Files of item ids by the name that expressions know them by, as a boolean attribute; read at each load."""
    compare: Path | None = None
    """Another run, whose lists the page shows beside those of the first; read at each load."""
    where: str | None = None
    """Expression over attributes that every list meets, whatever a request asks for."""

    journal: Path | None = None
    """Folder for the events that callers send, beside the run; None takes none."""
    max_events: int = Field(default=1000, ge=1)
    """Most events in one request."""
    max_journal_bytes: int = Field(default=2**28, ge=1)
    """Most bytes in the journal; more events are refused until an update has learned and pruned it."""

    @property
    def max_json_values(self) -> int:
        """Most values in a JSON body: one per 16 bytes of the longest body, and as many as users and histories need.

        So some 65,000 by default, in allow and block lists together.
        """
        return max(2 * (self.max_users + self.max_history) + 1000, self.max_body_bytes // 16)


@dataclass(frozen=True)
class Tokens:
    """The secrets of a service; they are never shown.

    Attributes:
        access: what every /v1 request must carry, or None for a service open to this machine.
        admin: what the /v1/admin requests must carry, or None to have no such requests.
    """

    access: str | None = field(default=None, repr=False)
    admin: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Tokens":
        """Return the tokens in the environment; an empty variable counts as none."""
        return cls(_token(environment, TOKEN_VARIABLE), _token(environment, ADMIN_TOKEN_VARIABLE))


def _token(environment: Mapping[str, str], variable: str) -> str | None:
    token = environment.get(variable)
    if not token:
        return None
    if len(token) < MIN_TOKEN_LENGTH:
        raise ConfigError(f"{variable} has {len(token)} characters; a token needs at least {MIN_TOKEN_LENGTH}")
    if not all("!" <= letter <= "~" for letter in token):
        raise ConfigError(f"{variable} holds a space or a character outside ASCII; a token travels in a header")
    return token


def check_address(host: str, tokens: Tokens) -> None:
    """Refuse to listen where others can connect unless a token keeps them out."""
    if tokens.access is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached from other machines; set {TOKEN_VARIABLE} to a secret of at least "
            f"{MIN_TOKEN_LENGTH} characters, or stay with --host 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine and cannot be reached from another."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
