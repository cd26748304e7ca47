"""What several ranks cost and give: `python -m benchmarks.ranks equality|scaling|wire|kills`; results as JSON lines.

equality DATASET...   1, 2 and 4 ranks, 50 steps of Rankformer: losses, embeddings, NDCG@20, bytes, memory, seconds
wire DATASET          the same on 2 ranks with bfloat16 on the wire
scaling               strong and weak scaling on a random graph: seconds per step and the share of communication
kills N [SEED]        trainings on 2 ranks, of which random ones are killed at random moments: N kills in all, every
                      other one while a file of a checkpoint is being written
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
    from rankformer.planning.ranks import Size, bytes_sent, memory_per_rank
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
        layers = model.settings.num_layers
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
        own, row = graph.own_items.stop - graph.own_items.start, 4 * model.settings.embedding_dim
        wanted = (3 * graph.num_users + graph.num_items + 2 * own) * row  # rows of table and moments
        size = Size(ranks.size * graph.num_users, graph.num_items, ranks.size * graph.num_edges, row // 4, layers)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        held = peak, sum(memory_per_rank(size, ranks.size).values()), state, wanted
        peaks = ranks.joined(np.array([held]) / 2**20)
        users = ranks.joined(scorer.users.detach().numpy())
        if ranks.rank == 0:
            predicted = bytes_sent("rankformer", size, ranks.size, 2 if wire else 4)
            said = {"ndcg": found, "bytes": sent, "formula": predicted}
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
            names = ("peak MB", "peak by formula", "table and moments MB", "table and moments by formula")
            line |= dict(zip(names, found["peaks"].T.round(1).tolist(), strict=True))
            print(json.dumps(line), flush=True)


def scaling() -> None:
    cases = [("strong", *each, "random:200000:20000:2000000") for each in ((1, 1), (1, 2), (2, 1))]
    cases += [("weak", count, 1, f"random:{100000 * count}:20000:{1000000 * count}") for count in (1, 2)]
    with tempfile.TemporaryDirectory() as folder:
        for kind, count, threads, source in cases:
            run(count, source, f"{folder}/out.npz", "6", OMP_NUM_THREADS=str(threads))
            found = np.load(f"{folder}/out.npz")
            line = {"scaling": kind, "ranks": count, "threads": threads, "graph": source}
            line["seconds per step"] = float(found["seconds"])
            print(json.dumps({**line, "communication": float(found["communication"])}), flush=True)


def kills(wanted: int, seed: int = 1) -> None:
    from rankformer.runs.saved import load_run

    options = ["--model", "rankformer", "--set", "embedding_dim=16", "--set", "validate_every=1", "--epochs", "40"]
    command = [sys.executable, "-m", "rankformer", "train", "demo", *options, "--ranks", "2", "--max-restarts", "99"]
    draws, done, number, during = random.Random(seed), 0, 0, 0
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*command, "--out", f"{folder}/calm"], check=True, **quiet)
        calm = load_run(Path(folder, "calm")).recommender.scorer
        while done < wanted:
            number, killed, out = number + 1, 0, Path(folder, f"run{number}")
            process = subprocess.Popen([*command, "--out", str(out)], **quiet)
            while process.poll() is None and done < wanted and killed < 2 + number % 2:
                until, aimed = time.monotonic() + draws.uniform(0, 6), done % 2 == 0
                found = ranks_of(process.pid)
                while process.poll() is None and (len(found) < 2 or aimed or time.monotonic() < until):
                    if len(found) == 2 and aimed and written(out):
                        break
                    found = found if len(found) == 2 else ranks_of(process.pid)
                    time.sleep(0 if aimed else 0.01)
                try:
                    os.kill(draws.choice(found), signal.SIGKILL)
                except (IndexError, ProcessLookupError):
                    continue
                killed, done, during = killed + 1, done + 1, during + aimed
                while any(Path(f"/proc/{each}").exists() for each in found) and process.poll() is None:
                    time.sleep(0.01)
            _, errors = process.communicate()
            line = {"run": number, "kills": killed, "exit code": process.returncode, "kills in all": done}
            if process.returncode:
                print(json.dumps({**line, "error": errors.decode()[-500:]}), flush=True)
                continue
            scorer = load_run(out).recommender.scorer
            worst = max(float((getattr(scorer, side) - getattr(calm, side)).abs().max()) for side in ("users", "items"))
            print(json.dumps({**line, "differs by": worst, "while a file was written": during}), flush=True)


def written(out: Path) -> bool:
    """Whether a file of a checkpoint, or of the run at its end, is being written."""
    return any(out.glob("checkpoint/**/.*.tmp")) or any(out.glob(".*.tmp"))


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
        kills(*map(int, given.words))


if __name__ == "__main__":
    main()
