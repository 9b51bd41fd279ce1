"""An independent reader of saved maps, written from `docs/json-format.md` alone.

It uses neither calibrank nor NumPy, so that it tests the format's documentation.
"""

import math
from bisect import bisect_right


def reader(document):
    """The function from score (and a row of further columns, if any) to probability."""
    if document["format"] != "calibrank-map" or document["version"] != 2:
        raise ValueError("not a map that this reader knows")
    curve, terms = document["curve"], document["terms"]
    if not terms and curve["kind"] in PROBABILITIES:
        probability = PROBABILITIES[curve["kind"]](curve)
        return lambda score, _row=None: probability(score)
    base = log_odds_of(curve)
    parts = [TERMS[each["kind"]](each) for each in terms if each["kind"] in TERMS]

    def evaluate(score, row=None):
        z = base(score)
        # The first positions have a curve of their own, to which the other terms add.
        for each in terms:
            if each["kind"] == "position":
                z = position(each, score, z, row)
        return sigmoid(z + sum(part(z, row) for part in parts))

    return evaluate


def log_odds_of(curve):
    """The function from score to log odds of a curve."""
    if curve["kind"] in LOG_ODDS:
        return LOG_ODDS[curve["kind"]](curve)
    probability = PROBABILITIES[curve["kind"]](curve)
    return lambda score: logit(min(max(probability(score), 1e-12), 1 - 1e-12))


def level(fields):
    numbers = zip(fields["intercepts"], fields["slopes"], strict=True)
    changes = dict(zip(map(tuple, fields["keys"]), numbers, strict=True))

    def added(z, row):
        key = tuple(str(row[name]) for name in fields["columns"])
        while key and key not in changes:
            key = key[:-1]
        intercept, slope = changes.get(key, (fields["typical"], 1.0))
        return intercept + (slope - 1) * z

    return added


def smooth(fields):
    knots, values = fields["knots"], fields["values"]

    def added(_z, row):
        value = row[fields["column"]]
        upper = bisect_right(knots, value)
        if upper in (0, len(knots)):
            return values[min(upper, len(knots) - 1)]
        share = (value - knots[upper - 1]) / (knots[upper] - knots[upper - 1])
        return values[upper - 1] + share * (values[upper] - values[upper - 1])

    return added


def position(fields, score, z, row):
    """The log odds of the curve that holds at the row's rank."""
    if row[fields["column"]] >= fields["n"] + 0.5:
        return z
    inside = log_odds_of(fields["curve"])(score)
    return inside + (smooth(fields["by_rank"])(z, row) if fields["by_rank"] else 0.0)


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
TERMS = {"level": level, "smooth": smooth}
