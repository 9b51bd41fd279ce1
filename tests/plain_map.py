"""An independent reader of saved maps, written from `docs/json-format.md` alone.

It uses neither calibrank nor NumPy, so that it tests the format's documentation.
"""

import math
from bisect import bisect_right


def reader(document):
    """The function from score (and segments, if any) to probability that a saved map describes."""
    if document["format"] != "calibrank-map" or document["version"] > 1:
        raise ValueError("not a map that this reader knows")
    if document["kind"] == "grouped":
        return grouped(document["map"])
    kinds = {"logistic": logistic, "piecewise": piecewise, "step": step, "rescale": rescale}
    return kinds[document["kind"]](document["map"])


def grouped(fields):
    base = reader({"format": "calibrank-map", "version": 1, **fields["base"]})
    changes = {tuple(each["key"]): each for each in fields["segments"]}

    def evaluate(score, segments):
        key = tuple(segments[name] for name in fields["columns"])
        while key and key not in changes:
            key = key[:-1]
        if not key:
            return base(score)
        p = min(max(base(score), 1e-300), 1 - 1e-16)
        z = math.log(p / (1 - p))
        return sigmoid(changes[key]["intercept"] + changes[key]["slope"] * z)

    return evaluate


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
            return sigmoid(values[0] + below * (score - knots[0]))
        if upper == len(knots):
            return sigmoid(values[-1] + above * (score - knots[-1]))
        slope = (values[upper] - values[upper - 1]) / (knots[upper] - knots[upper - 1])
        return sigmoid(values[upper - 1] + slope * (score - knots[upper - 1]))

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
        return sigmoid(log_odds)

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
