"""Run in a process of its own: build one kind of step, take a few, print peak memory and seconds as JSON."""

import json
import statistics
import sys
import time

import torch

from benchmarks.measure import peak_memory_here


def main(kind: str, dataset: str, count: int) -> None:
    if kind == "bare":
        torch.zeros(1)
        print(json.dumps({"peak_mb": peak_memory_here()}))
        return
    from benchmarks.steps import PAPER, our_step, synthetic, textbook_step, training_part

    train = synthetic(int(dataset)) if dataset.isdecimal() else training_part(dataset)
    make = {"ours": our_step, "textbook": textbook_step}[kind]
    step = make(train, *PAPER.get(dataset, (3, 0.4)))
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"peak_mb": peak_memory_here(), "seconds": statistics.median(seconds[1:] or seconds)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", int(sys.argv[3]) if len(sys.argv) > 3 else 3)
