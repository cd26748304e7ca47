"""What several ranks cost and give: `python -m benchmarks.ranks equality|scaling|wire|kills`; results as JSON lines.

equality DATASET...   1, 2 and 4 ranks, 50 steps of Rankformer: losses, embeddings, NDCG@20, bytes, memory, seconds
wire DATASET          the same on 2 ranks with bfloat16 on the wire
scaling               strong and weak scaling on a random graph: seconds per step and the share of communication
kills N               trainings on 2 ranks, of which random ones are killed at random moments: N kills in all
"""

import argparse
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = 50


def formula(ranks: int, m: int, d: int, layers: int, wire: int = 4) -> float:
    """Bytes that a rank sends per step of Rankformer: all item-side sums, and the table of items at the end.

    A layer reduces m d sums of neighbours, m normalisers, M' (d d), h, s_R (d) and sum r forward, and the items'
    gradient m d backward; the warm-up reduces m d each way. A reduction sends its buffer twice, (P - 1) / P of it each
    time; the table's gradient is reduced once and its new values, in float32, gathered once.
    """
    forward = (layers + 1) * m * d + layers * (m + d * d + 2 * d + 1)
    backward = (layers + 1) * m * d
    return (ranks - 1) / ranks * (2 * wire * (forward + backward) + (wire + 4) * m * d)


def start(count: int, *words: str, **environment: str) -> list[subprocess.Popen]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "benchmarks.ranks", "worker", *words]
    return [
        subprocess.Popen(command, env={**shared, **environment, "WORLD_SIZE": str(count), "RANK": str(rank)})
        for rank in range(count)
    ]


def run(count: int, *words: str, **environment: str) -> None:
    if any(process.wait() for process in start(count, *words, **environment)):
        raise SystemExit("a rank failed")


def worker(source: str, out: str, steps: int) -> None:
    """Train Rankformer for some steps on this rank; the first writes what came out of it."""
    from rankformer import Interactions, Rankformer
    from rankformer.data.parts import Parts
    from rankformer.data.source import DataSource
    from rankformer.evaluation.validator import make_validator
    from rankformer.graph.bipartite import BipartiteGraph
    from rankformer.graph.collectives import Ranks, joined_ranks
    from rankformer.training.trainer import TrainingLoop

    waited = [0.0]
    originals = dict(vars(Ranks))
    for name in ("_reduce", "_gather_"):

        def timed(self, *arguments, inner=originals[name], **options):
            begun = time.perf_counter()
            result = inner(self, *arguments, **options)
            waited[0] += time.perf_counter() - begun
            return result

        setattr(Ranks, name, timed)
    wire = os.environ.get("WIRE")
    with joined_ranks(120, wire) as ranks:
        if source.startswith("random:"):
            n, m, edges = map(int, source.split(":")[1:])
            draws = np.random.default_rng(0)
            log = Interactions.from_indices(draws.integers(0, n, edges), draws.zipf(1.3, edges) % m, n, m)
            parts = Parts.of(log, np.zeros(len(log), dtype=np.int8))
        else:
            parts = DataSource(source=source).load()
        if not ranks.alone:
            parts = parts.block_of(ranks.rank, ranks.size)
        model = Rankformer(epochs=steps)
        graph = BipartiteGraph.from_interactions(parts.train)
        network = model.network_class(graph.num_users, graph.num_items, model.settings)
        if not source.startswith("random:"):
            network.initialize(graph)
        loop, losses, seconds = TrainingLoop(network, graph, model.settings), [], []
        ranks.barrier()
        before, waited[0] = ranks.bytes_sent, 0.0
        for step in range(steps):
            loop.progress.epoch = step + 1
            begun = time.perf_counter()
            losses.append(loop.one_epoch())
            seconds.append(time.perf_counter() - begun)
        sent, share = (ranks.bytes_sent - before) / steps, waited[0] / sum(seconds)
        scorer = loop.scorer()
        has_test = ranks.total(len(parts.test))[0] > 0
        found = make_validator(parts.train, parts.test)(scorer)["ndcg@20"] if has_test else 0.0
        state = sum(t.nbytes for t in loop.optimizer.tensors().values()) + network.table.nbytes
        peaks = ranks.joined(np.array([[resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, state / 2**20]]))
        users = ranks.joined(scorer.users.detach().numpy())
        if ranks.rank == 0:
            size = model.settings.embedding_dim, model.settings.num_layers, 2 if wire else 4
            said = {"ndcg": found, "bytes": sent, "formula": formula(ranks.size, graph.num_items, *size)}
            said |= {"seconds": float(np.median(seconds)), "communication": share, "peaks": peaks}
            np.savez(out, losses=losses, users=users, items=scorer.items.numpy(), **said)


def compare(dataset: str, counts: list[int], **environment: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            run(count, dataset, f"{folder}/{count}.npz", str(STEPS), **(environment if count > 1 else {}))
        one = np.load(f"{folder}/{counts[0]}.npz")
        for count in counts:
            found = np.load(f"{folder}/{count}.npz")
            line = {"dataset": dataset, "ranks": count, **environment, "ndcg@20": round(float(found["ndcg"]), 6)}
            for name in ("losses", "users", "items"):
                line[f"{name} differ by"] = float(np.abs(found[name] - one[name]).max())
            line["bytes per step"], line["formula"] = float(found["bytes"]), float(found["formula"])
            line["seconds per step"] = round(float(found["seconds"]), 4)
            line["communication"] = round(float(found["communication"]), 3)
            line["peak MB"], line["table and moments MB"] = (found["peaks"].T.round(1)).tolist()
            print(json.dumps(line), flush=True)


def scaling() -> None:
    cases = [("strong", count, "random:200000:20000:2000000") for count in (1, 2)]
    cases += [("weak", count, f"random:{100000 * count}:20000:{1000000 * count}") for count in (1, 2)]
    with tempfile.TemporaryDirectory() as folder:
        for kind, count, source in cases:
            run(count, source, f"{folder}/out.npz", "6")
            found = np.load(f"{folder}/out.npz")
            line = {"scaling": kind, "ranks": count, "graph": source, "seconds per step": float(found["seconds"])}
            print(json.dumps({**line, "communication": float(found["communication"])}), flush=True)


def kills(wanted: int) -> None:
    from rankformer.runs.saved import load_run

    options = ["--model", "rankformer", "--set", "embedding_dim=16", "--set", "validate_every=1", "--epochs", "60"]
    draws, done, number, during = random.Random(1), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "rankformer",
            "train",
            "demo",
            *options,
            "--ranks",
            "2",
            "--max-restarts",
            "99",
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
        subprocess.run([*command, "--out", f"{folder}/calm"], check=True, **quiet)
        calm = load_run(Path(folder, "calm")).recommender.scorer
        while done < wanted:
            number += 1
            out = Path(folder, f"run{number}")
            process = subprocess.Popen([*command, "--out", str(out)], **quiet)
            killed = 0
            while process.poll() is None and done < wanted and killed < 12:
                found = ranks_of(process.pid)
                if len(found) < 2:
                    time.sleep(0.01)
                    continue
                time.sleep(draws.uniform(0, 6))
                found = ranks_of(process.pid)
                if found and process.poll() is None:
                    during += any(out.glob("checkpoint/.*.tmp")) or any(out.glob(".staged*"))
                    try:
                        os.kill(draws.choice(found), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    killed, done = killed + 1, done + 1
            code = process.wait()
            scorer = load_run(out).recommender.scorer
            worst = max(float((getattr(scorer, side) - getattr(calm, side)).abs().max()) for side in ("users", "items"))
            line = {"run": number, "kills": killed, "exit code": code, "differs by": worst}
            print(json.dumps({**line, "kills in all": done, "while a file was written": during}), flush=True)


def ranks_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_child = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"\0RANK=" in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["equality", "wire", "scaling", "kills", "worker"])
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    if given.what == "worker":
        worker(given.words[0], given.words[1], int(given.words[2]))
    elif given.what == "equality":
        for dataset in given.words:
            compare(dataset, [1, 2, 4])
    elif given.what == "wire":
        compare(given.words[0], [1, 2], WIRE="bfloat16")
    elif given.what == "scaling":
        scaling()
    else:
        kills(int(given.words[0]))


if __name__ == "__main__":
    main()
