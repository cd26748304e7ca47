"""A folder of shards: a log split into train, valid and test, its users in contiguous blocks, each in files of its own.

    manifest.json                      sizes, and the SHA-256 of every other file and of itself; written last
    items.parquet                      raw item ids, position = index, and titles where known
    shard-00000-of-00004/users.parquet raw ids of its users, from `first_user` on
    shard-00000-of-00004/train.parquet (and valid, test) user and item indices of the whole log, times, weights

`rankformer data shard` writes one (`rankformer.data.sharding`). Every file also says which log and how many shards it
is of, so that a file of another folder is told from a damaged one.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Block, Parts
from rankformer.errors import DataError
from rankformer.files import sha256_of

FORMAT, VERSION, MANIFEST, ITEMS = "rankformer-shards", 1, "manifest.json", "items.parquet"
PARTS = ("train", "valid", "test")
MOST_BYTES = 64 << 20  # of a manifest
_Count = Annotated[int, Field(ge=0, lt=2**63)]


class FileEntry(BaseModel, strict=True):
    """What the manifest says of another file."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: _Count
    rows: _Count


class ShardEntry(BaseModel, strict=True):
    """What the manifest says of a shard: its users, and the files in its folder."""

    first_user: _Count
    num_users: _Count
    files: dict[str, FileEntry]


class ShardManifest(BaseModel, strict=True):
    """The schema of a manifest of shards.

    `log` names the log in every file; `fingerprint` is over ids and interactions, the same for any number of shards.
    """

    name: str
    log: str
    fingerprint: str
    num_users: Annotated[int, Field(ge=1, lt=2**31)]
    num_items: Annotated[int, Field(ge=1, lt=2**31)]
    items: FileEntry
    shards: Annotated[list[ShardEntry], Field(min_length=1)]
    source: dict[str, Any] = {}


class Shard(NamedTuple):
    """The users of one shard, and their interactions in the three parts as columns (user, item, time, weight)."""

    first_user: int
    user_ids: pa.Array
    parts: dict[str, dict[str, NDArray[Any]]]


def shard_folder(shard: int, shards: int) -> str:
    """Return the name of a shard's folder."""
    return f"shard-{shard:05d}-of-{shards:05d}"


def is_sharded(folder: Path) -> bool:
    """Return whether a folder holds shards, finished or not."""
    return folder.is_dir() and ((folder / ITEMS).is_file() or any(folder.glob("shard-*-of-*")))


def checksum_of(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its checksum."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ShardedLog:
    """A log in shards, of which one or all can be read. `open` checks the manifest, each reading its files."""

    folder: Path
    manifest: ShardManifest

    @classmethod
    def open(cls, folder: Path, shards: int | None = None) -> "ShardedLog":
        """Return the log in a folder.

        Args:
            folder: that `rankformer data shard` made.
            shards: how many there must be, such as one for each rank; any number by default.

        Raises:
            DataError: the folder is unfinished, a file is missing or of another size, or the number is another.
        """
        path = folder / MANIFEST
        if not path.is_file():
            raise DataError(
                f"{folder} has no {MANIFEST}: sharding did not finish, or it is another folder; shard again"
            )
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES} bytes; it is not a file this package wrote")
        try:
            content = json.loads(path.read_bytes())
            intact = content.pop("checksum") == checksum_of(content)
            found = content.pop("format"), content.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            intact, found = False, ("", 0)
        if not intact:
            raise DataError(f"{path} is damaged: its content does not match its checksum; shard the log again")
        if found != (FORMAT, VERSION):
            raise DataError(f"{path}: found {found[0]} version {found[1]}, this package reads {FORMAT} {VERSION}")
        try:
            log = cls(folder, ShardManifest.model_validate(content))
        except ValidationError as error:
            raise DataError(f"{path} is not a manifest of shards ({error.errors()[0]['loc']}); shard again") from None
        if shards not in (None, log.num_shards):
            raise DataError(
                f"{folder} has {log.num_shards} shards where {shards} were expected, one per rank; use --ranks "
                f"{log.num_shards}, or shard the log again with --shards {shards}"
            )
        for name, entry in log._files():
            if not (folder / name).is_file():
                raise DataError(f"{folder / name} is missing; copy it again, or shard the log again")
            if (size := (folder / name).stat().st_size) != entry.size:
                log._refuse(name, f"has {size:,} bytes where {entry.size:,} were written")
        return log

    @property
    def num_shards(self) -> int:
        """How many shards there are."""
        return len(self.manifest.shards)

    def _files(self) -> list[tuple[str, FileEntry]]:
        inner = [
            (f"{shard_folder(number, self.num_shards)}/{name}", entry)
            for number, shard in enumerate(self.manifest.shards)
            for name, entry in shard.files.items()
        ]
        return [(ITEMS, self.manifest.items), *inner]

    def read_shard(self, number: int) -> Shard:
        """Return one shard; no file of another one is read.

        Raises:
            DataError: a file of it is damaged, or belongs to another log or number of shards.
        """
        entry, folder = self.manifest.shards[number], shard_folder(number, self.num_shards)
        ids = self._read(f"{folder}/users.parquet", entry.files["users.parquet"])["id"].combine_chunks()
        if len(ids) != entry.num_users:
            raise DataError(f"{self.folder / folder} has {len(ids)} user ids where {entry.num_users} were expected")
        parts = {}
        for part in PARTS:
            name = f"{folder}/{part}.parquet"
            table = self._read(name, entry.files[f"{part}.parquet"])
            columns = {column: table[column].to_numpy() for column in table.column_names}
            first, last = entry.first_user, entry.first_user + entry.num_users
            for column, low, high in (("user", first, last), ("item", 0, self.manifest.num_items)):
                values = columns[column]
                if len(values) and not (values.min() >= low and values.max() < high):
                    raise DataError(f"{self.folder / name}: {column} indices must lie in {low}..{high - 1}")
            parts[part] = columns
        return Shard(entry.first_user, ids, parts)

    def item_ids(self) -> tuple[IdMap, pa.Array | None]:
        """Return the raw ids of all items, and their titles where known."""
        table = self._read(ITEMS, self.manifest.items)
        titles = table["title"].combine_chunks() if "title" in table.column_names else None
        return IdMap(table["id"].combine_chunks()), titles

    def load(self) -> Interactions:
        """Return all shards as one log with the part of each interaction, train first."""
        shards = [self.read_shard(number) for number in range(self.num_shards)]
        item_ids, titles = self.item_ids()
        names = shards[0].parts["train"].keys()
        columns = {n: np.concatenate([s.parts[part][n] for part in PARTS for s in shards]) for n in names}
        sizes = [sum(len(shard.parts[part]["user"]) for shard in shards) for part in PARTS]
        return Interactions(
            columns["user"],
            columns["item"],
            IdMap(pa.concat_arrays([shard.user_ids for shard in shards])),
            item_ids,
            columns.get("time"),
            columns.get("weight"),
            titles,
            self.manifest.name,
            np.repeat(np.arange(3, dtype=np.int8), sizes),
        )

    def load_block(self, number: int) -> Parts:
        """Return the parts of one shard as a rank's block of users; no file of another shard is read."""
        shard, (item_ids, titles), manifest = self.read_shard(number), self.item_ids(), self.manifest
        user_ids, parts = IdMap(shard.user_ids), []
        for part, columns in shard.parts.items():
            told = (f"{manifest.fingerprint}/{part}", manifest.fingerprint, manifest.fingerprint)
            block = Block(shard.first_user, len(shard.user_ids), manifest.num_users, *told)
            users = (columns["user"] - shard.first_user).astype(np.int32)
            indices = users, columns["item"].astype(np.int32), user_ids, item_ids
            more = columns.get("time"), columns.get("weight"), titles, f"{manifest.name}/{part}"
            parts.append(Interactions(*indices, *more, block=block))
        return Parts(*parts)

    def _read(self, name: str, entry: FileEntry) -> pa.Table:
        path = self.folder / name
        if sha256_of(path) != entry.sha256:
            self._refuse(name, "does not match its checksum")
        table = pyarrow.parquet.ParquetFile(path).read()  # read_table waits for ever where memory is short
        if table.num_rows != entry.rows:
            raise DataError(f"{path} has {table.num_rows} rows where {entry.rows} were written; shard again")
        return table

    def _refuse(self, name: str, found: str) -> None:
        """Raise what is wrong with a file: whose it is if it says so, or else that it is damaged."""
        path = self.folder / name
        try:
            told = pyarrow.parquet.read_schema(path).metadata or {}
        except (pa.ArrowException, OSError, ValueError):
            told = {}
        log, shards = told.get(b"log", b"").decode(), told.get(b"shards", b"").decode()
        if log and log != self.manifest.log:
            raise DataError(f"{path} belongs to another log ({log[:12]}, not {self.manifest.log[:12]}); copy it again")
        if shards and shards != str(self.num_shards):
            raise DataError(f"{path} is one of {shards} shards, not of {self.num_shards}; copy it again")
        raise DataError(f"{path} is damaged: it {found}; copy it again, or shard the log again")
