"""Tables of a reproduction as Markdown: our numbers with intervals, the published ones beside them."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrank.experiment.runner import Grid
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread, best_of, paired_p

ROWS = (
    *(("uncalibrated", method, "none") for method in ("MinMax", "Sigmoid")),
    *(("non-parametric", method, "naive") for method in ("Histogram", "Isotonic", "BBQ")),
    *(("parametric, naive", method, "naive") for method in ("Platt", "Beta", "Gaussian", "Gamma")),
    *(("parametric, UERM", method, "ips") for method in ("Platt", "Beta", "Gaussian", "Gamma")),
)
"""The lines of Tables 1, 4 and 5."""
BEYOND = tuple(
    ("not in the paper", method, loss)
    for method, loss in (
        ("GammaGaussian", "naive"),
        ("GammaGaussian", "ips"),
        ("Temperature", "ips"),
        ("Isotonic", "ips"),
    )
)
OURS = ("Gaussian", "Gamma")
_PRINTED = {"Histogram": "Hist"}
_LOSSES = {"ips": "uerm"}


@dataclass(frozen=True, slots=True)
class Published:
    """The paper's numbers, by table."""

    values: dict[tuple[str, ...], float]

    @classmethod
    def read(cls, path: Path) -> "Published":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        keys = ("metric", "method", "loss", "dataset", "model")
        return cls({tuple(row[key] for key in keys): float(row["value"]) for row in rows})

    def find(self, metric: str, method: str, loss: str, dataset: str, model: str) -> float | None:
        """A published number, if there is one."""
        key = (metric, _PRINTED.get(method, method), _LOSSES.get(loss, loss), dataset, model)
        return self.values.get(key)


@dataclass(frozen=True, slots=True, eq=False)
class Writer:
    """Writes tables of one dataset under one spec and split."""

    results: Results
    published: Published
    spec: Spec
    dataset: str
    split: str

    def all(self) -> Iterator[str]:
        """Every table that compares with the paper's."""
        yield f"## {self.spec.title}\n\n{self.spec.why.strip()}\n"
        count = self.spec.negatives_for(self.dataset) or "as many as stand for all unobserved pairs"
        yield f"Negatives a held-out positive: {count}. {self.spec.why_negatives.strip()}\n"
        for number, name, ours, printed in (
            (1, "expected calibration error", "ECE", "ECE"),
            (4, "maximum calibration error", "ReleasedMCE", "MCE"),
            (5, "negative log-likelihood", "LogLoss", "NLL"),
        ):
            yield self.calibration(f"Table {number}: {name}", ours, printed)
        yield self.ranking()

    def _models(self) -> list[str]:
        return [model for model in self.spec.models if model in self.results.distinct("model")]

    def _spread(self, metric: str, method: str, loss: str, model: str) -> Spread | None:
        return self.results.spread(**self._key(metric, method, loss, model))

    def _key(self, metric: str, method: str, loss: str, model: str) -> dict[str, object]:
        return {
            "spec": self.spec.name, "split": self.split, "model": model, "method": method, "loss": loss,
            "propensity": "popularity", "metric": metric, "negatives": self.spec.negatives_for(self.dataset),
        }  # fmt: skip

    def calibration(self, title: str, metric: str, printed: str) -> str:
        """A table like the paper's Table 1."""
        models = self._models()
        lines = [f"### {title}\n", _header(["", "method", *models])]
        lowest = {model: self._lowest(metric, model) for model in models}
        for group, method, loss in (*ROWS, *BEYOND):
            cells = []
            for model in models:
                spread = self._spread(metric, method, loss, model)
                theirs = self.published.find(printed, method, loss, self.dataset, model)
                cells.append(_cell(spread, theirs, bold=lowest[model] == (method, loss)))
            known = (
                f"{method}, {'UERM' if loss == 'ips' else loss}"
                if (group, method, loss) in BEYOND
                else method
            )
            lines.append(_line([group, known, *cells]))
        lines.append(
            _line(["", "improvement", *(self._improvement(metric, model) for model in models)])
        )
        lines.append(_line(["", "paired test", *(self._test(metric, model) for model in models)]))
        return "\n".join(lines) + "\n"

    def _lowest(self, metric: str, model: str) -> tuple[str, str] | None:
        spreads = {
            f"{method}|{loss}": spread
            for _, method, loss in ROWS
            if (spread := self._spread(metric, method, loss, model)) is not None
        }
        best = best_of(spreads)
        return None if best is None else (best.split("|")[0], best.split("|")[1])

    def _rivals(self, metric: str, model: str) -> tuple[dict[str, Spread], dict[str, Spread]]:
        """Ours (Gaussian and Gamma with UERM), and everyone else."""
        ours: dict[str, Spread] = {}
        others: dict[str, Spread] = {}
        for _, method, loss in ROWS:
            spread = self._spread(metric, method, loss, model)
            if spread is not None:
                mine = method in OURS and loss == "ips"
                rest = method not in OURS
                (ours if mine else others if rest else {})[f"{method}|{loss}"] = spread
        return ours, others

    def _improvement(self, metric: str, model: str) -> str:
        ours, others = self._rivals(metric, model)
        mine, best = best_of(ours), best_of(others)
        if mine is None or best is None or not others[best].mean:
            return ""
        return f"{1 - ours[mine].mean / others[best].mean:+.1%}"

    def _test(self, metric: str, model: str) -> str:
        ours, others = self._rivals(metric, model)
        mine, best = best_of(ours), best_of(others)
        if mine is None or best is None:
            return ""
        one, two = (
            self.results.values(**self._key(metric, name.split("|")[0], name.split("|")[1], model))
            for name in (mine, best)
        )
        p = paired_p(one, two) if len(one) == len(two) else float("nan")
        loss = {"none": "", "naive": ", naive", "ips": ", UERM"}[best.split("|")[1]]
        return f"{mine.split('|')[0]} against {best.split('|')[0]}{loss}: " + (
            "-" if p != p else f"p = {p:.2g}"
        )  # noqa: PLR0124

    def ranking(self) -> str:
        """A table like the paper's Table 3."""
        models = self._models()
        lines = ["### Table 3: ranking accuracy\n", _header(["metric", *models])]
        for metric in [f"{name}@{k}" for name in ("NDCG", "Recall") for k in (1, 3, 5)]:
            cells = []
            for model in models:
                spread = self.results.spread(
                    spec=self.spec.name, split=self.split, model=model, metric=metric, method=""
                )
                cells.append(
                    _cell(spread, self.published.find(metric, "", "", self.dataset, model))
                )
            lines.append(_line([metric, *cells]))
        return "\n".join(lines) + "\n"

    def agreement(self) -> str:
        """In how many cells the published ECE of our two methods lies in the interval of our mean, or is worse."""
        met, lines = 0, [_header(["", *self._models()])]
        total = 0
        for method in OURS:
            cells = []
            for model in self._models():
                spread = self._spread("ECE", method, "ips", model)
                theirs = self.published.find("ECE", method, "ips", self.dataset, model)
                if spread is None or theirs is None:
                    cells.append("")
                    continue
                total += 1
                better, inside = spread.mean <= theirs, abs(spread.mean - theirs) <= spread.half
                met += better or inside
                near = (
                    "**not met**, within one run's range"
                    if spread.covers(theirs)
                    else "**not met**"
                )
                cells.append(
                    "ours is better" if better else "within our interval" if inside else near
                )
            lines.append(_line([method, *cells]))
        if not total:
            return ""
        heading = f"### Published ECE against ours, Gaussian and Gamma with UERM: {met} of {total} agree or improve\n"
        return "\n".join([heading, *lines]) + "\n"


def write_tables(grid: Grid, results: Results, published: Published) -> str:
    """Every table of a run, spec by spec."""
    parts = [
        f"# {grid.dataset}, {grid.seeds} seeds\n",
        "Mean over seeds ± half its 95 % interval (published number, difference); best of a column in bold.\n",
    ]
    for spec in grid.specs:
        mine = results.where(spec=spec.name)
        writer = Writer(mine, published, spec, grid.dataset, spec.splits[0])
        parts += [*writer.all(), sweeps(mine, spec, grid.dataset)]
        if writer.split == "released":
            parts.append(writer.agreement())
    return "\n".join(part for part in parts if part)


def sweeps(results: Results, spec: Spec, dataset: str) -> str:
    """What the paper does not show, for one spec: split x loss, and base rates."""
    lines = [
        "### Gaussian by split and loss: ECE; mean prediction over the true base rate; ECE of each user's top 5\n",
        _header(["split", "loss", *spec.models]),
    ]
    for split in spec.splits:
        for loss in spec.losses:
            cells = [_three(results, spec, dataset, split, loss, model) for model in spec.models]
            lines.append(_line([split, loss, *cells]))
    return "\n".join(lines) + "\n"


def _three(results: Results, spec: Spec, dataset: str, split: str, loss: str, model: str) -> str:
    key = {
        "spec": spec.name, "split": split, "model": model, "method": "Gaussian", "loss": loss,
        "propensity": "popularity", "negatives": spec.negatives_for(dataset),
    }  # fmt: skip
    parts = [
        results.spread(**key, metric=metric)
        for metric in ("ECE", "CalibrationInTheLarge", "ECE of top 5")
    ]
    if any(part is None for part in parts):
        return ""
    ece, large, top = (part.mean for part in parts if part is not None)
    return f"{ece:.4f}; {large:.2f}; {top:.4f}"


def _cell(spread: Spread | None, published: float | None, *, bold: bool = False) -> str:
    if spread is None:
        return ""
    own = f"{spread.mean:.4f}"
    own = f"**{own}**" if bold else own
    half = "" if spread.half != spread.half else f" ±{spread.half:.4f}"
    beside = "" if published is None else f" ({published:.4f}, {spread.mean - published:+.4f})"
    return own + half + beside


def _header(names: Sequence[str]) -> str:
    return _line(names) + "\n" + "|---" * len(names) + "|"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
