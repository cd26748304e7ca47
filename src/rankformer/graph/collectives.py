"""Sums and gathers over the ranks of a distributed run; alone, each of them does nothing and costs nothing.

A rank holds a contiguous block of the users with their interactions, and all items. Two rules carry everything:

    values       whatever belongs to an item is the same on every rank; sums over users are summed over ranks at once
    gradients    that of an item is a part on every rank, and the sum of the parts is the gradient: whoever needs the
                 whole sums it, and a term that every rank could add is added by the owner of the item alone

The items are owned in P slices of c = ceil(m / P). Each rank keeps the optimiser's state of its users and its slice.

Everything is built from two exchanges of a buffer of P equal chunks: each rank sends chunk q to rank q, which adds up
the P copies in the order of the ranks (`reduce`); and each sends its chunk to all (`gather`). So a sum has the same
bits on all ranks, and (P - 1) / P of the buffer is sent in each exchange. Numbers may travel as bfloat16; they are
added in their own type, and exact sums and the table of items never are rounded.
"""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from math import prod
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from rankformer import errors
from rankformer.errors import RankError, RankformerError

TIMEOUT = 600.0  # seconds that a rank waits for another


@dataclass(eq=False)
class Ranks:
    """The ranks of a run and which one this is."""

    rank: int = 0
    size: int = 1
    wire: torch.dtype | None = None  # what numbers travel as, None for their own type
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    bytes_sent: int = 0  # by this rank, so far

    current: ClassVar["Ranks"]

    @property
    def alone(self) -> bool:
        return self.size == 1

    def slice_of(self, count: int) -> slice:
        """Return which of `count` rows this rank owns."""
        chunk = -(-count // self.size)
        return slice(min(self.rank * chunk, count), min((self.rank + 1) * chunk, count))

    def sum_(self, *tensors: Tensor, exact: bool = False) -> None:
        """Replace tensors of one type by their sums over the ranks, all in one reduction."""
        if self.alone:
            return
        sizes = [tensor.numel() for tensor in tensors]
        flat = self._buffer(sum(sizes), tensors[0])
        for part, tensor in zip(torch.split(flat[: sum(sizes)], sizes), tensors, strict=True):
            part.view(tensor.shape).copy_(tensor)
        self._gather_(flat, self._reduce(flat, exact), exact)
        for part, tensor in zip(torch.split(flat[: sum(sizes)], sizes), tensors, strict=True):
            tensor.copy_(part.view(tensor.shape))

    def reduce_(self, rows: Tensor) -> None:
        """Replace the rows that this rank owns by their sums over the ranks; the others are left as they are."""
        if self.alone:
            return
        flat = self._buffer(rows.numel(), rows, chunk=-(-len(rows) // self.size) * prod(rows.shape[1:]))
        flat[: rows.numel()].view(rows.shape).copy_(rows)
        own = rows[self.slice_of(len(rows))]
        own.copy_(self._reduce(flat)[: own.numel()].view(own.shape))

    def gather_(self, rows: Tensor) -> None:
        """Replace the rows that other ranks own by theirs."""
        if self.alone:
            return
        flat = self._buffer(rows.numel(), rows, chunk=-(-len(rows) // self.size) * prod(rows.shape[1:]))
        own = rows[self.slice_of(len(rows))]
        mine = flat.new_zeros(len(flat) // self.size)
        mine[: own.numel()].view(own.shape).copy_(own)
        self._gather_(flat, mine, exact=True)
        rows.copy_(flat[: rows.numel()].view(rows.shape))

    def total(self, *numbers: float) -> list[float]:
        """Return the sum over the ranks of each number, in float64."""
        if self.alone:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        self.sum_(values, exact=True)
        return [float(value) for value in values]

    def agreed(self, value: float) -> float:
        """Return the value of the first rank."""
        return value if self.alone else self.total(value if self.rank == 0 else 0.0)[0]

    def before(self, count: int) -> tuple[int, int]:
        """Return how many the ranks before this one have, and how many there are in all."""
        if self.alone:
            return 0, count
        counts = self.total(*(count if rank == self.rank else 0 for rank in range(self.size)))
        return int(sum(counts[: self.rank])), int(sum(counts))

    def in_turn(self, array: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield the array of each rank, in order, on every rank; they may differ in length, not otherwise."""
        if self.alone:
            yield array
            return
        lengths = self.total(*(len(array) if rank == self.rank else 0 for rank in range(self.size)))
        for rank, length in enumerate(lengths):
            part = array.copy() if rank == self.rank else np.empty((int(length), *array.shape[1:]), array.dtype)
            data = torch.from_numpy(part.reshape(-1).view(np.uint8)).to(self.device)
            if data.numel():
                with _watched():
                    dist.broadcast(data, rank)
                self.bytes_sent += data.numel() if rank == self.rank else 0
            yield part if rank == self.rank else data.cpu().numpy().view(array.dtype).reshape(part.shape)

    def joined(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the arrays of all ranks one after another."""
        return array if self.alone else np.concatenate(list(self.in_turn(array)))

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.total(0.0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Do something that may fail on some ranks: then all of them raise the first one's error, at the end."""
        text = ""
        try:
            yield
        except RankError:
            raise
        except (RankformerError, OSError) as error:
            if self.alone:
                raise
            kind = type(error).__name__ if isinstance(error, RankformerError) else "RankformerError"
            text = f"{kind}:{error}"
        if self.alone:
            return
        said = [part.tobytes().decode() for part in self.in_turn(np.frombuffer(text.encode(), np.uint8))]
        for rank, each in enumerate(said):
            if each:
                kind, _, line = each.partition(":")
                raise getattr(errors, kind)(line if len(set(said)) == 1 else f"rank {rank}: {line}")

    def _buffer(self, count: int, like: Tensor, chunk: int | None = None) -> Tensor:
        """Return a flat buffer of P equal chunks for so many numbers; what is beyond them is 0."""
        chunk = -(-count // self.size) if chunk is None else chunk
        flat = like.new_empty(self.size * chunk)
        flat[count:] = 0
        return flat

    def _reduce(self, flat: Tensor, exact: bool = False) -> Tensor:
        """Return this rank's chunk of the sum of all buffers."""
        sent = flat if exact or self.wire is None else flat.to(self.wire)
        received = torch.empty_like(sent)
        with _watched():
            dist.all_to_all_single(received, sent)
        self._count(sent)
        return received.view(self.size, -1).to(flat.dtype).sum(0)

    def _gather_(self, flat: Tensor, own: Tensor, exact: bool = False) -> None:
        """Fill the buffer with the chunks of all ranks."""
        sent = own if exact or self.wire is None else own.to(self.wire)
        received = flat if sent.dtype == flat.dtype else torch.empty_like(flat, dtype=sent.dtype)
        with _watched():
            _all_gather(received, sent)
        self._count(received)
        if received is not flat:
            flat.copy_(received)

    def _count(self, buffer: Tensor) -> None:
        self.bytes_sent += buffer.numel() * buffer.element_size() * (self.size - 1) // self.size


ALONE = Ranks.current = Ranks()
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # its name from torch 2.13 on


@contextmanager
def _watched() -> Iterator[None]:
    """Say in one line that another rank is gone or does not answer."""
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        ranks = Ranks.current
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        found = "another rank did not answer in time" if late else "another rank has ended or cannot be reached"
        raise RankError(f"rank {ranks.rank} of {ranks.size}: {found}; start again with --resume") from error


def _own_store(timeout: timedelta) -> Store:
    """Return a store for the ranks of this start alone.

    torchrun keeps one store over all restarts. In it are still the addresses of ranks that have ended, and a rank that
    finds these tries to connect to nobody. So each rank asks under a name that was never used before, and the first
    rank of this start, the only one alive that answers, names the part of the store that is theirs.
    """
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    name, deadline = uuid4().hex, time.monotonic() + timeout.total_seconds()
    if rank:
        store.set(f"asking/{rank}", name)
        start = store.get(name).decode()
        store.set(f"{start}/{rank}", b"")
        return PrefixStore(start, store)
    left = list(range(1, size))
    while left and time.monotonic() < deadline:
        for other in left:
            if store.check([f"asking/{other}"]):
                store.set(store.get(f"asking/{other}").decode(), name)
        left = [other for other in left if not store.check([f"{name}/{other}"])]
        time.sleep(0.01)
    if left:
        raise dist.DistError(f"timed out waiting for ranks {left}")
    return PrefixStore(name, store)


@contextmanager
def joined_ranks(timeout: float = TIMEOUT, wire: str | None = None, device: str = "auto") -> Iterator[Ranks]:
    """Join the ranks that torchrun has started, if it has; yield them, or `ALONE`.

    Args:
        timeout: seconds that a rank waits for another before it gives up.
        wire: "bfloat16" to send rounded numbers, None to send them as they are.
        device: of the computation; nccl connects those on CUDA, gloo all others.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    on_cuda = device != "cpu" and torch.cuda.is_available()
    place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_cuda else torch.device("cpu")
    number, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    Ranks.current = ranks = Ranks(number, count, None if wire is None else getattr(torch, wire), place)
    limit = timedelta(seconds=timeout)
    try:
        with _watched():
            options: dict[str, Any] = {"store": _own_store(limit), "rank": number, "world_size": count}
            dist.init_process_group("nccl" if on_cuda else "gloo", timeout=limit, **options)
        yield ranks
        ranks.barrier()  # so that none closes its connections while another still uses them
    finally:
        Ranks.current = ALONE
        if dist.is_initialized():
            dist.destroy_process_group()
            # What still refers to the group may be a cycle. Its threads drop the last tensors when it is gone, for
            # which they need the interpreter: one that is ending would abort the process.
            gc.collect()
