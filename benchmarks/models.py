"""Training speed: our models against a plain torch loop and implicit's BPR, one thread, in the same run.

`python benchmarks/models.py` on a CPU, `--device cuda` on a GPU. Prints ratios; exits 1 if one is missed.
The log has Yahoo!R3's shape: 15,400 users, 1,000 items, 125,000 positives.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch.nn.functional import softplus

from calibrank.data import RandomSplit
from calibrank.models import BPR, LightGCN, Model, Training, train_seeds
from calibrank.registry import models
from calibrank.tables import Interactions

USERS, ITEMS, POSITIVES, DIM, BATCH = 15_400, 1_000, 125_000, 128, 512
results: list[bool] = []


def report(what: str, value: float, limit: float, *, least: bool = True) -> None:
    met = value >= limit if least else value <= limit
    results.append(met)
    print(
        f"{'ok  ' if met else 'MISS'} {what}: {value:,.2f} (at {'least' if least else 'most'} {limit:g})",
        flush=True,
    )


def log() -> Interactions:
    """Positives of people and songs with tastes in ten dimensions, popular songs more often."""
    rng = np.random.default_rng(0)
    people, songs = rng.standard_normal((USERS, 10)), rng.standard_normal((ITEMS, 10))
    appeal = (
        people @ songs.T + rng.standard_normal(ITEMS) * 1.5 + rng.gumbel(size=(USERS, ITEMS)) * 2
    )
    each = np.maximum(rng.poisson(POSITIVES / USERS, USERS), 2)
    order = np.argsort(-appeal, axis=1)[:, : each.max()]
    kept = np.arange(each.max()) < each[:, None]
    return Interactions(np.repeat(np.arange(USERS), each), order[kept], None, USERS, ITEMS)


class Triples(torch.utils.data.Dataset[tuple[int, int, int]]):
    """What a tutorial's loop reads."""

    def __init__(self, positives: Interactions) -> None:
        self.users, self.items = positives.users, positives.items
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, at: int) -> tuple[int, int, int]:
        return int(self.users[at]), int(self.items[at]), int(self.rng.integers(ITEMS))


def plain_loop(positives: Interactions, steps: int, layers: int) -> float:
    """Positives a second of DataLoader, nn.Embedding and default Adam; with layers, LightGCN by torch.sparse."""
    users, items = torch.nn.Embedding(USERS, DIM), torch.nn.Embedding(ITEMS, DIM)
    optimizer = torch.optim.Adam(
        [*users.parameters(), *items.parameters()], lr=1e-3, weight_decay=1e-3
    )
    graph = adjacency(positives) if layers else None

    def batches() -> Iterator[list[torch.Tensor]]:
        yield from torch.utils.data.DataLoader(Triples(positives), BATCH, shuffle=True)

    begin = 0.0
    for number, (who, liked, other) in enumerate(batches()):
        if number == 1:
            begin = time.perf_counter()
        table = torch.cat([users.weight, items.weight])
        hops = [table]
        for _ in range(layers):
            hops.append(torch.sparse.mm(graph, hops[-1]))
        people, songs = (
            torch.stack(hops).mean(0).split([USERS, ITEMS])
            if layers
            else (users.weight, items.weight)
        )
        loss = softplus(-(people[who] * (songs[liked] - songs[other])).sum(1)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == steps:
            break
    return steps * BATCH / (time.perf_counter() - begin)


def adjacency(positives: Interactions) -> torch.Tensor:
    users, items = positives.users, positives.items + USERS
    ends = np.stack([np.concatenate([users, items]), np.concatenate([items, users])])
    degree = np.bincount(ends[0], minlength=USERS + ITEMS)
    values = (1 / np.sqrt(degree[ends[0]] * degree[ends[1]])).astype(np.float32)
    coo = torch.sparse_coo_tensor(
        torch.from_numpy(ends), torch.from_numpy(values), (USERS + ITEMS,) * 2
    )
    return coo.coalesce().to_sparse_csr()


def ours(model: Model, positives: Interactions, epochs: int, device: str, seeds: int = 1) -> float:
    """Positives a second and seed, start and compilation aside."""
    moments: list[float] = []
    training = Training(epochs=epochs + 1, device=device)
    train_seeds(
        model,
        positives,
        range(seeds),
        None,
        training,
        progress=lambda _: moments.append(now(device)),
    )
    return seeds * epochs * len(positives) / (moments[-1] - moments[0])


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def peer(positives: Interactions, epochs: int) -> float:
    """Implicit's BPR, which has no Adam and no batches: Hogwild, one thread."""
    from implicit.bpr import BayesianPersonalizedRanking  # noqa: PLC0415  (an optional peer)

    matrix = csr_matrix(
        (np.ones(len(positives), np.float32), (positives.users, positives.items)), (USERS, ITEMS)
    )
    model = BayesianPersonalizedRanking(
        factors=DIM - 1, iterations=epochs, num_threads=1, use_gpu=False
    )
    begin = time.perf_counter()
    model.fit(matrix, show_progress=False)
    return epochs * len(positives) / (time.perf_counter() - begin)


def on_cpu(positives: Interactions) -> None:
    torch.set_num_threads(1)
    for model, layers, steps, least in ((BPR(), 0, 40, 6), (LightGCN(), 2, 8, 3)):
        pairs = [
            (ours(model, positives, 1, "cpu"), plain_loop(positives, steps, layers))
            for _ in range(3)
        ]
        mine, plain = (max(speeds) for speeds in zip(*pairs, strict=True))
        print(f"     {model.name}: {mine:,.0f} positives/s, a plain loop {plain:,.0f}")
        report(f"{model.name} on one thread / a plain torch loop", mine / plain, least)
    try:
        print(f"     implicit's BPR (SGD, no batches): {peer(positives, 3):,.0f} positives/s")
    except ImportError:
        print("     implicit is not installed: no figure of it")


def on_gpu(positives: Interactions) -> None:
    report(
        "BPR, million positives/s on a GPU",
        max(ours(BPR(), positives, 20, "cuda") for _ in range(2)) / 1e6,
        2.5,
    )
    kept, held = RandomSplit().divide(positives)
    total = 0.0
    for model in models().values():
        begin = time.perf_counter()
        (done,) = train_seeds(model, kept, [0], held, Training(device="cuda"))
        spent = time.perf_counter() - begin
        total += spent
        best = max(ndcg for _, ndcg in done.history)
        print(
            f"     {model.name}: {spent:.1f} s to epoch {done.best_epoch} + patience, NDCG@5 {best:.4f}",
            flush=True,
        )
    report("all five to convergence, seconds", total, 45, least=False)
    for model, most in ((BPR(), 0.5), (LightGCN(), 0.75)):
        alone, together = (ours(model, kept, 10, "cuda", seeds) / seeds for seeds in (1, 8))
        report(
            f"{model.name}: 8 seeds together, time / 8 x one alone",
            alone / together / 8,
            most,
            least=False,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--report-only", action="store_true", help="never fail: for machines that others use too"
    )
    options = parser.parse_args()
    positives = log()
    print(f"{positives!r}, torch {torch.__version__}")
    on_gpu(positives) if options.device == "cuda" else on_cpu(positives)
    sys.exit(0 if options.report_only or all(results) else 1)


if __name__ == "__main__":
    main()
