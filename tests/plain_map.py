"""An independent reader of saved maps, written from `docs/json-format.md` alone.

It uses neither calibrank nor NumPy, so that it tests the format's documentation.
"""

import math
from bisect import bisect_right


def reader(document):
    """The function from score (and a row of further columns, if any) to probability."""
    if document["format"] != "calibrank-map" or document["version"] > 1:
        raise ValueError("not a map that this reader knows")
    if document["kind"] in PROBABILITIES:
        probability = PROBABILITIES[document["kind"]](document["map"])
        return lambda score, _row=None: probability(score)
    log_odds = log_odds_of(document)
    return lambda score, row=None: sigmoid(log_odds(score, row))


def log_odds_of(document):
    """The function from score and row to log odds."""
    with_columns = {"grouped": grouped, "additive": additive, "top": top}
    if document["kind"] in with_columns:
        return with_columns[document["kind"]](document["map"])
    if document["kind"] in LOG_ODDS:
        log_odds = LOG_ODDS[document["kind"]](document["map"])
        return lambda score, _row=None: log_odds(score)
    probability = PROBABILITIES[document["kind"]](document["map"])
    return lambda score, _row=None: logit(min(max(probability(score), 1e-12), 1 - 1e-12))


def grouped(fields):
    base = log_odds_of(fields["base"])
    changes = {tuple(each["key"]): each for each in fields["segments"]}

    def evaluate(score, row):
        key = tuple(row[name] for name in fields["columns"])
        while key and key not in changes:
            key = key[:-1]
        if not key:
            return base(score)
        return changes[key]["intercept"] + changes[key]["slope"] * base(score)

    return evaluate


def additive(fields):
    base = log_odds_of(fields["base"])

    def evaluate(score, row):
        added = sum(term(each, row[each["column"]]) for each in fields["terms"])
        return fields["intercept"] + fields["slope"] * base(score) + added

    return evaluate


def top(fields):
    above, below = log_odds_of(fields["top"]), log_odds_of(fields["base"])

    def evaluate(score, row):
        rank = row[fields["column"]]
        if rank >= fields["n"] + 0.5:
            return below(score)
        return above(score) + (term(fields["term"], rank) if "term" in fields else 0.0)

    return evaluate


def term(fields, value):
    values = fields["values"]
    if "categories" in fields:
        return dict(zip(fields["categories"], values, strict=True)).get(value, 0.0)
    knots = fields["knots"]
    upper = bisect_right(knots, value)
    if upper in (0, len(knots)):
        return values[min(upper, len(knots) - 1)]
    share = (value - knots[upper - 1]) / (knots[upper] - knots[upper - 1])
    return values[upper - 1] + share * (values[upper] - values[upper - 1])


def rescale(fields):
    low, high = fields["low"], fields["high"]
    return lambda score: min(max((score - low) / (high - low), 0.0), 1.0)


def step(fields):
    return lambda score: fields["values"][bisect_right(fields["edges"], score)]


def piecewise(fields):
    knots, values = fields["knots"], fields["values"]
    below, above = fields["end_slopes"]

    def evaluate(score):
        upper = bisect_right(knots, score)
        if upper == 0:
            return values[0] + below * (score - knots[0])
        if upper == len(knots):
            return values[-1] + above * (score - knots[-1])
        slope = (values[upper] - values[upper - 1]) / (knots[upper] - knots[upper - 1])
        return values[upper - 1] + slope * (score - knots[upper - 1])

    return evaluate


def logistic(fields):
    low, high = fields["low"], fields["high"]
    coefficients = fields["coefficients"]
    slopes_at_low, slopes_at_high = end_slopes(fields)
    below = dot(coefficients, slopes_at_low)
    above = dot(coefficients, slopes_at_high)

    def evaluate(score):
        inside = min(max(score, low), high)
        terms = generators(fields["basis"], inside, low, high)
        log_odds = fields["intercept"] + dot(coefficients, terms)
        log_odds += below * min(score - low, 0.0)
        log_odds += above * max(score - high, 0.0)
        return log_odds

    return evaluate


def generators(basis, s, low, high):
    u = (s - low) / (high - low)
    if basis["name"] == "linear":
        return [u]
    if basis["name"] == "quadratic":
        return [(1 - (1 - u) ** 2) / 2, u**2 / 2]
    if basis["name"] == "softplus":
        return [-softplus(-s), softplus(s)]
    m = basis["margin"]
    rise = math.log(1 + u / m)
    terms = [m * ((1 + m) * rise - u), (1 + m) * (u - m * rise)]
    if basis["name"] == "log":
        return terms
    return [*terms, (1 + 2 * m) * u - (u + 2 * m) * u / 2 - m * (1 + m) * rise]


def end_slopes(fields):
    """Slopes of the generators at both ends of the range."""
    low, high, name = fields["low"], fields["high"], fields["basis"]["name"]
    if name == "softplus":
        return [[sigmoid(-end), sigmoid(end)] for end in (low, high)]
    if name == "linear":
        return [[1 / (high - low)], [1 / (high - low)]]
    flat = [0.0] if name == "log-quadratic" else []
    return [[1 / (high - low), 0.0, *flat], [0.0, 1 / (high - low), *flat]]


def dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def logit(p):
    return math.log(p) - math.log1p(-p)


PROBABILITIES = {"step": step, "rescale": rescale}
LOG_ODDS = {"logistic": logistic, "piecewise": piecewise}
