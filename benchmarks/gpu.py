"""A GPU's arrays: predicting and fitting against copying the scores there, in the same run.

`python benchmarks/gpu.py [--rows 1000000000]`, on a machine with a CUDA GPU.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch

import calibrank as cr


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The best of some runs, after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    rows = parser.parse_args().rows
    scores = torch.empty(rows, device="cuda").normal_(
        generator=torch.Generator("cuda").manual_seed(0)
    )
    labels = (torch.rand(rows, device="cuda") < torch.sigmoid(scores - 3)).to(torch.uint8)
    copy = seconds(scores.clone)
    print(
        f"{torch.cuda.get_device_name()}, {rows:,} float32 scores: a copy takes {copy * 1e3:.2f} ms"
    )
    for method in (cr.Gaussian(), cr.Platt(), cr.Gamma(), cr.Beta()):
        fitted = method.fit(scores, labels)
        ratio = seconds(partial(fitted.predict, scores)) / copy
        print(f"predict {method.name}: {ratio:.2f} copies (at most 1.3 for Gaussian)")
    for name, given, limit in (("uint8", labels, 10), ("float32", labels.float(), 11)):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        ratio = seconds(partial(cr.Gaussian().fit, scores, given)) / copy
        extra = (torch.cuda.max_memory_allocated() - before) / 1e9
        print(f"fit Gaussian, {name} labels: {ratio:.1f} copies (at most {limit}), {extra:.2f} GB")


if __name__ == "__main__":
    main()
