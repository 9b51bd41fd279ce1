"""draft"""

import sys, time, warnings
from pathlib import Path
import numpy as np
import calibrank as cr
from calibrank.search import judged_rows, read_qrels, read_run, fit_judged
from calibrank.search.judged import Judged
from calibrank.search.held_out import fit_for_new_queries
from calibrank.tabular.labels import parse_rule

warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
splits = int(sys.argv[2]) if len(sys.argv) > 2 else 20
rule = parse_rule("grade >= 2")
human = read_qrels(str(folder / "human.qrels"))
judge = read_qrels(str(folder / "judge.qrels"))


def ll(p, y):
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return -np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))


def ece(p, y):
    return cr.ECE()(p, y)


def platt(s, y):
    if y.min() == y.max():
        r = (y.sum() + 0.5) / (len(y) + 1)
        return lambda x: np.full(len(x), r)
    try:
        return cr.Platt().fit(s, y).predict
    except Exception as e:
        r = y.mean()
        return lambda x: np.full(len(x), r)


def group(s, y, q):
    try:
        return fit_for_new_queries(s, y, q).predict
    except Exception as e:
        return platt(s, y)


def spread(rng, q, k):
    # round robin over queries
    order = rng.permutation(len(q))
    names = rng.permutation(np.unique(q))
    out = []
    by = {n: [i for i in order if q[i] == n] for n in names}
    r = 0
    while len(out) < k:
        for n in names:
            if len(by[n]) > r and len(out) < k:
                out.append(by[n][r])
        r += 1
    return np.array(out)


res = {}


def add(m, p, y, run):
    res.setdefault(m, {}).setdefault(run, []).append((ll(p, y), ece(p, y)))


for f in sorted(folder.glob("*.parquet")):
    run = read_run(str(f))
    t0 = time.time()
    jh = judged_rows(run, human, rule)
    jj = judged_rows(run, judge, rule)
    assert len(jh) == len(jj)
    s, y, z, q = jh.scores, jh.labels, jj.labels, jh.queries
    names = np.unique(q)
    for seed in range(splits):
        rng = np.random.default_rng(seed)
        tr = np.isin(q, rng.permutation(names)[: len(names) // 2])
        te = ~tr
        S, Y, Z, Q = s[tr], y[tr], z[tr], q[tr]
        x, t = s[te], y[te]
        start = fit_for_new_queries(S, Z, Q)
        R = f.stem
        add("judge", start.predict(x), t, R)
        for k in (30, 60, 100, 200):
            rows = spread(rng, Q, k)
            add(f"constant {k}", np.full(len(x), (Y[rows].sum() + 0.5) / (k + 1)), t, R)
            add(f"platt {k}", platt(S[rows], Y[rows])(x), t, R)
            add(f"group {k}", group(S[rows], Y[rows], Q[rows])(x), t, R)
            if k <= 100:
                add(
                    f"anchor {k}",
                    cr.anchor(start, S[rows], Y[rows], groups=Q[rows]).predict(x),
                    t,
                    R,
                )
                add(f"anchor nogroup {k}", cr.anchor(start, S[rows], Y[rows]).predict(x), t, R)
        for nq in (1, 3):
            pick = rng.permutation(np.unique(Q))[:nq]
            rows = np.concatenate(
                [rng.permutation(np.flatnonzero(Q == n))[: 30 // nq] for n in pick]
            )
            add(f"whole {nq}", cr.anchor(start, S[rows], Y[rows], groups=Q[rows]).predict(x), t, R)
        for nq in (5, 10, 20):
            pick = rng.permutation(np.unique(Q))[:nq]
            rows = np.flatnonzero(np.isin(Q, pick))
            add(
                f"wholeq anchor {nq}",
                cr.anchor(start, S[rows], Y[rows], groups=Q[rows]).predict(x),
                t,
                R,
            )
            add(f"wholeq group {nq}", group(S[rows], Y[rows], Q[rows])(x), t, R)
            add(f"wholeq platt {nq}", platt(S[rows], Y[rows])(x), t, R)
    print(f.stem, len(s), y.mean(), z.mean(), round(time.time() - t0), flush=True)
import pickle

pickle.dump(res, open(sys.argv[3] if len(sys.argv) > 3 else "/tmp/judge-work/res.pkl", "wb"))
for m, by in res.items():
    a = np.array([by[r] for r in by])  # runs x splits x 2
    d = a.mean(0)
    print(
        f"{m:20s} ll {d[:, 0].mean():.4f} ({d[:, 0].std(ddof=1) / len(d) ** 0.5:.4f}) ece {d[:, 1].mean():.4f}"
    )
