"""Promises about new users: kept in worlds whose truth is known, whatever users are like."""

import itertools
import math

import numpy as np
import pytest

import calibrank as cr
from calibrank import decisions
from calibrank.decisions import (
    CUTS,
    Gap,
    PooledPrecision,
    Precision,
    Predicted,
    Promise,
    Rank,
    Recall,
    Threshold,
)
from calibrank.decisions.promises import accept_forward, fewest_users, log_capital

ROWS = 12
Draw = tuple[np.ndarray, np.ndarray, np.ndarray]


def draw(users: int, rng: np.random.Generator, slope: float = 1.0) -> Draw:
    """Users whose rows depend on each other: a user's labels share a random shift."""
    codes = np.repeat(np.arange(users), ROWS)
    probabilities = rng.random(users * ROWS)
    mood = rng.choice([-0.2, 0.2], users)[codes]
    labels = rng.random(users * ROWS) < np.clip(probabilities * slope + mood, 0, 1)
    return probabilities, labels.astype(float), codes


def draw_heavy(users: int, rng: np.random.Generator) -> Draw:
    """1% of users have 60 times as many rows, and like nothing that is shown to them."""
    heavy = rng.random(users) < 0.01
    codes = np.repeat(np.arange(users), np.where(heavy, 300, 5))
    probabilities = rng.random(len(codes))
    likes = np.where(heavy, -1, rng.choice([0, 0.2], users))[codes]
    labels = rng.random(len(codes)) < np.clip(probabilities + likes, 0, 1)
    return probabilities, labels.astype(float), codes


def lists_of(
    data: Draw, found: decisions.Guarantee, longest: int | None
) -> list[tuple[int, int, int]]:
    """Per user: rows shown, relevant among them, relevant among all; by a loop."""
    probabilities, labels, codes = data
    counts = []
    for rows in np.split(np.arange(len(codes)), np.flatnonzero(np.diff(codes)) + 1):
        order = rows[np.lexsort((labels[rows], -probabilities[rows]))]
        values = probabilities[order]
        if found.threshold is not None:
            shown = values >= found.threshold
        elif found.rank is not None:
            shown = np.arange(len(order)) < found.rank
        else:
            shown = values[0] - values <= found.gap
        shown &= np.arange(len(order)) < (longest or len(order))
        relevant = labels[order]
        counts.append((shown.sum(), relevant[shown].sum(), relevant.sum()))
    return counts


def value_of(
    promise: Promise, data: Draw, found: decisions.Guarantee, longest: int | None = None
) -> float:
    """Precision or recall of a cut, from its definition."""
    counts = lists_of(data, found, longest)
    if isinstance(promise, Recall):
        return float(np.mean([hit / every for _, hit, every in counts if every]))
    if isinstance(promise, PooledPrecision):
        return sum(hit for _, hit, _ in counts) / sum(shown for shown, _, _ in counts)
    return float(np.mean([hit / shown for shown, hit, _ in counts if shown]))


# ----- the promise -----
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.name)
@pytest.mark.parametrize(
    ("promise", "longest", "world"),
    [
        (Precision(0.65), None, draw),
        (Precision(0.65), None, draw_heavy),
        (PooledPrecision(0.7), 4, draw),
        (Recall(0.8), None, draw),
        (Recall(0.6), None, draw_heavy),
        (Recall(0.4), 6, draw),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_promise_is_broken_in_at_most_5_percent_of_worlds(
    cut: cr.decisions.Cut, promise: Promise, longest: int | None, world: object
) -> None:
    rng = np.random.default_rng(0)
    truth = world(2_000, np.random.default_rng(99))
    broken = {}
    found = []
    for _ in range(60):
        result = cr.control(*world(150, rng), promise, cut=cut, longest=longest)
        if result.best is None:
            continue
        value = result.best.value
        found.append(value)
        if value not in broken:
            broken[value] = value_of(promise, truth, result, longest) < promise.at_least
    assert sum(broken[value] for value in found) <= 3
    assert len(found) > 30


def test_expected_values_and_lengths_are_those_of_the_definition() -> None:
    data = draw(400, np.random.default_rng(2))
    promises = [Precision(0.55), Recall(0.5)]
    for cut in CUTS:
        found = cr.control(*data, promises, cut=cut, longest=8)
        counts = lists_of(data, found, 8)
        assert found.best.length == np.mean([shown for shown, _, _ in counts])
        assert found.best.shown == np.mean([shown > 0 for shown, _, _ in counts])
        for promise, expected in zip(promises, found.best.expected, strict=True):
            assert expected == pytest.approx(value_of(promise, data, found, 8))


def test_more_users_give_longer_lists_up_to_the_true_precision() -> None:
    truth = draw(3_000, np.random.default_rng(99))
    draws = [draw(users, np.random.default_rng(3)) for users in (100, 1_000, 10_000)]
    results = [cr.control(*data, Precision(0.65)) for data in draws]
    thresholds = [result.threshold for result in results]
    assert thresholds == sorted(thresholds, reverse=True)
    assert 0.65 < value_of(Precision(0.65), truth, results[-1]) < 0.67


def test_known_result_of_certain_labels() -> None:
    probabilities = np.tile([0.1, 0.9], 200)
    given = probabilities, probabilities > 0.5, np.repeat(np.arange(200), 2)
    found = cr.control(*given, Precision(0.8))
    assert (found.threshold, found.rank, found.gap) == (0.11, None, None)
    assert found.best.expected == (1.0,)
    assert cr.control(*given, Recall(0.8)).threshold == 0.9
    both = cr.control(*given, [Precision(0.9), Recall(0.9)], cut=Rank())
    assert both.rank == 1
    assert str(both) == (
        "Show the best 1 of each list. For new users like these 200, if these rows are all of "
        "their candidates, with 95% confidence: lists are on average at least 90% relevant "
        "(100.0% in these labels), and lists show on average "
        "at least 90% of the relevant candidates (100.0% in these labels). Lists have 1 rows on "
        "average; 100.0% of users are shown something."
    )
    assert both.content()["rank"] == 1
    assert both.content()["promises"][1] == {"kind": "Recall", "at_least": 0.9, "expected": 1.0}


def test_the_shortest_list_is_chosen_among_kinds_of_cuts() -> None:
    """One relevant row per query, always the first: only a rank finds it alone."""
    rng = np.random.default_rng(4)
    codes = np.repeat(np.arange(300), 10)
    levels = rng.random(300)[codes]
    probabilities = levels * np.tile(np.linspace(1, 0.95, 10), 300)
    labels = np.tile(np.arange(10) == 0, 300)
    found = cr.control(probabilities, labels, codes, Recall(0.9), cut=CUTS, units="queries")
    assert found.rank == 1
    assert found.best.length == 1
    alone = cr.control(probabilities, labels, codes, Recall(0.9))
    assert alone.best.length > 8
    assert "new queries like these 300" in str(found)


def test_promises_that_exclude_each_other_name_the_price() -> None:
    data = draw(1_000, np.random.default_rng(5))
    found = cr.control(*data, [Precision(0.75), Recall(0.8)])
    assert found.best is None
    assert found.needed is None
    precise = [point for point in found.curve if point.expected[0] and point.expected[0] >= 0.75]
    price = max(point.expected[1] for point in precise)
    assert f"precision of 75% leaves recall of at most {price:.1%} (threshold" in str(found)
    assert any(point.kept[1] for point in found.curve)


def test_no_answer_where_the_best_is_not_good_enough() -> None:
    """Half of the queries have nothing relevant that is found: without them both can be kept."""
    rng = np.random.default_rng(6)
    codes = np.repeat(np.arange(600), 10)
    is_easy = (np.arange(600) % 2 == 0)[codes]
    labels = np.where(is_easy, np.tile(np.arange(10) < 3, 600), rng.random(6_000) < 0.3)
    probabilities = np.where(is_easy, np.where(labels, 0.9, 0.1), 0.3)
    promises = [Precision(0.9), Recall(0.9)]
    assert cr.control(probabilities, labels, codes, promises, cut=CUTS).best is None
    found = cr.control(probabilities, labels, codes, promises, cut=CUTS, abstain=True)
    assert found.best.answer_from == 0.4
    assert found.best.shown == 0.5
    assert found.best.expected == (1, 1)
    assert "whose best probability is 0.4 or more" in str(found)


# ----- too few users -----
def test_too_few_users_are_told_how_many_are_needed() -> None:
    few = cr.control([0.9] * 10, [1] * 10, range(10), Recall(0.8))
    assert few.best is None
    assert few.needed == fewest_users(0.2, 1 - 0.95)
    assert f"10 users are too few: at least {few.needed} are needed, and often" in str(few)
    enough = range(few.needed)
    assert cr.control([0.9] * few.needed, [1] * few.needed, enough, Recall(0.8)).best


def test_users_who_are_shown_nothing_do_not_count_as_labelled_ones() -> None:
    """One user in ten is shown something at a threshold that keeps the promise."""
    probabilities = np.tile([0.9] + [0.4] * 9, 15)
    found = cr.control(probabilities, probabilities > 0.5, range(150), Precision(0.8))
    assert found.needed == fewest_users(0.2, (1 - 0.95) / 8) * 10


def test_promises_cuts_and_levels_share_the_error() -> None:
    few = [0.9] * 10, [1] * 10, range(10)
    error = 1 - 0.95
    assert cr.control(*few, Recall(0.8), cut=CUTS).needed == fewest_users(0.2, error / 3)
    both = cr.control(*few, [Recall(0.8), Recall(0.8)], abstain=True)
    assert both.needed == fewest_users(0.2, error / 10)
    precise = cr.control(*few, Precision(0.8))
    assert precise.needed == fewest_users(0.2, error / 8)


def test_no_pooled_precision_is_promised_from_lists_that_are_shorter_than_allowed() -> None:
    """One user in 300 may have 100 irrelevant rows, and 50 users with one row say nothing of it."""
    given = [0.9] * 50, [1] * 50, range(50)
    assert cr.control(*given, PooledPrecision(0.8), longest=100).best is None
    assert cr.control(*given, PooledPrecision(0.8), longest=1).best is not None
    assert cr.control(*given, Precision(0.8)).best is not None


def test_users_who_are_sorted_by_their_success_prove_nothing() -> None:
    """18% are lost on average; the first 60 users alone would prove any promise."""
    labels = np.repeat([1, 1, 0], [600, 220, 180])
    users = np.repeat(np.arange(100), 10)
    found = cr.control(np.full(1_000, 0.5), labels, users, Precision(0.8))
    assert found.best is None
    assert found.needed > 500


def test_no_test_needs_fewer_than_a_perfect_record_takes_to_be_surprising() -> None:
    """n users without a loss have probability 0.8^n at the border: 14 are the least for 5%."""
    least = math.ceil(math.log(0.05) / math.log(0.8))
    assert least <= fewest_users(0.2, 0.05) <= least + 3


def test_labels_that_break_the_promise_are_named() -> None:
    probabilities, _, codes = draw(200, np.random.default_rng(7))
    found = cr.control(probabilities, np.zeros(len(codes)), codes, Precision(0.8))
    assert found.needed is None
    assert "In these labels, precision is at most 0.0% (threshold" in str(found)


# ----- the bound -----
def capital_by_loop(excess: list[float], allowed: float, error: float) -> float:
    """The capital of one cut, written as the game is played."""
    seen = [0.0]
    squares = [0.25 / (1 - allowed) ** 2]
    capital = best = 1.0
    for value in excess:
        variance = sum(squares) / len(squares)
        bet = min(0.99, math.sqrt(2 * math.log(1 / error) / (len(excess) * variance)))
        capital *= 1 - bet * value
        best = max(best, capital)
        seen.append(value)
        squares.append((value - sum(seen) / len(seen)) ** 2)
    return best if sum(excess) < 0 else 1.0


def test_capital_equals_that_of_the_game() -> None:
    excess = np.random.default_rng(8).uniform(-0.25, 1, (40, 4)) - [0.2, 0.4, 0.5, 0.6]
    expected = [capital_by_loop(list(column), 0.2, 0.01) for column in excess.T]
    assert np.exp(log_capital(excess, 0.2, 0.01)) == pytest.approx(expected)
    assert expected[0] == 1
    assert expected[1] > 1


@pytest.mark.parametrize("allowed", [0.1, 0.3, 0.5])
def test_the_error_is_at_most_the_stated_one_over_all_outcomes(allowed: float) -> None:
    """All 2^12 sequences of losses of 0 or 1 at the border of the promise, with probabilities."""
    losses = np.array(list(itertools.product([0, 1], repeat=12)))
    chance = np.prod(np.where(losses == 1, allowed, 1 - allowed), axis=1)
    excess = (losses.T - allowed) / (1 - allowed)
    for error in (0.01, 0.05, 0.3):
        is_accepted = log_capital(excess, allowed, error) >= -math.log(error)
        assert chance[is_accepted].sum() <= error


def test_the_bound_is_sharper_than_hoeffding_bentkus_for_lists() -> None:
    """Share lost per list of 10, 200 users: accepted by betting, not by the mean alone."""
    stats = pytest.importorskip("scipy.stats", reason="scipy has the binomial distribution")
    rng = np.random.default_rng(9)
    accepted = np.zeros(2)
    for _ in range(100):
        loss = rng.binomial(10, 0.15, 200) / 10
        mean = loss.mean()
        divergence = mean * math.log(mean / 0.2) + (1 - mean) * math.log((1 - mean) / 0.8)
        tail = math.e * stats.binom.cdf(math.ceil(200 * mean), 200, 0.2)
        by_mean = min(math.exp(-200 * divergence), tail) <= 0.05
        capital = log_capital((loss[:, None] - 0.2) / 0.8, 0.2, 0.05)[0]
        accepted += [capital >= math.log(20), by_mean]
    assert accepted[0] > 95
    assert accepted[1] < 70


def test_later_cuts_inherit_the_error_of_accepted_ones() -> None:
    """Five cuts, five starts of 1% each: 100 is needed alone, 50 after one accepted before."""
    some = accept_forward(np.log([200.0, 200.0, 1.0, 30.0, 200.0]), 0.05)
    assert np.flatnonzero(some).tolist() == [0, 1, 4]
    assert all(accept_forward(np.log([101.0, 51.0, 34.0, 26.0, 21.0]), 0.05))
    assert not any(accept_forward(np.log([99.0, 51.0, 99.0, 99.0, 99.0]), 0.05))


# ----- rows, users, weights -----
def test_order_of_rows_and_tied_probabilities_do_not_help() -> None:
    """Relevant rows come first in the table, with the probability of all others."""
    codes = np.repeat(np.arange(100), 10)
    labels = np.tile(np.arange(10) < 3, 100)
    found = cr.control(np.full(1_000, 0.5), labels, codes, Precision(0.5), cut=Rank())
    assert found.best is None
    data = draw(100, np.random.default_rng(10))
    order = np.random.default_rng(11).permutation(len(data[0]))
    shuffled = [values[order] for values in data]
    assert cr.control(*shuffled, Recall(0.6)) == cr.control(*data, Recall(0.6))


def test_copies_of_rows_are_no_new_users() -> None:
    data = draw(100, np.random.default_rng(12))
    copies = [np.tile(values, 10) for values in data]
    alone = cr.control(*data, Precision(0.6))
    assert cr.control(*copies, Precision(0.6)).threshold == alone.threshold


def test_impressions_are_weighted_with_the_smallest_propensity_of_the_design() -> None:
    """Liked pairs are shown five times as often as others."""
    rng = np.random.default_rng(13)
    probabilities, labels, codes = draw(4_000, rng)
    propensity = np.where(labels == 1, 1.0, 0.2)
    seen = rng.random(len(codes)) < propensity
    given = probabilities[seen], labels[seen], codes[seen]
    naive = cr.control(*given, PooledPrecision(0.7), longest=ROWS)
    evidence = cr.impressions(labels[seen], propensity[seen])
    promise = PooledPrecision(0.7, smallest_propensity=0.2)
    weighted = cr.control(given[0], evidence, given[2], promise, longest=ROWS)
    truth = draw(3_000, np.random.default_rng(99))
    assert value_of(promise, truth, naive) < 0.6
    assert 0.7 < value_of(promise, truth, weighted) < 0.8
    with pytest.raises(cr.DataError, match=r"smallest_propensity must be at most 0\.2"):
        cr.control(given[0], evidence, given[2], PooledPrecision(0.7), longest=ROWS)
    with pytest.raises(
        cr.DataError, match="labels must be of all candidates for Recall, got a sample"
    ):
        cr.control(given[0], evidence, given[2], Recall(0.7))


# ----- maps and their labels -----
def test_scores_are_given_with_their_map() -> None:
    scores, labels, codes = draw(200, np.random.default_rng(14))
    # Not the rows themselves, which are refused.
    fitted = cr.Platt().fit(scores[1:], labels[1:])
    expected = cr.control(fitted.predict(scores), labels, codes, Precision(0.6))
    assert cr.control(Predicted(fitted, scores), labels, codes, Precision(0.6)) == expected

    columns = {"country": np.where(codes % 2 == 0, "NL", "DE")}
    others = {"country": columns["country"][1:]}
    by_country = (cr.Platt() + cr.Level("country")).fit(scores[1:], labels[1:], others)
    expected = cr.control(by_country.predict(scores, columns), labels, codes, Precision(0.6))
    given = Predicted(by_country, scores, columns)
    assert cr.control(given, labels, codes, Precision(0.6)) == expected
    anchored = cr.anchor(fitted, scores, labels)
    with pytest.raises(cr.DataError, match="labels must be of pairs that the map was not fitted"):
        cr.control(Predicted(anchored, scores), labels, codes, Precision(0.6))


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_rows_that_the_map_was_fitted_on_are_refused(weight: float) -> None:
    scores, labels, codes = draw(60, np.random.default_rng(15))
    order = np.random.default_rng(16).permutation(len(scores))
    evidence = cr.naive(labels, weights=np.full(len(scores), weight))
    fitted = cr.Platt().fit(scores, evidence)
    with pytest.raises(cr.DataError, match="labels must be of pairs that the map was not fitted"):
        cr.control(Predicted(fitted, scores[order]), labels[order], codes[order], Precision(0.6))
    other = scores.copy()
    other[np.argmax(other)] += 1e-9
    cr.control(Predicted(fitted, other), labels, codes, Precision(0.6))
    if weight == 1:  # positives are then counted
        cr.control(Predicted(fitted, scores), 1 - labels, codes, Precision(0.6))


def test_labels_that_anchored_the_map_are_refused_also_in_part() -> None:
    scores, labels, codes = draw(60, np.random.default_rng(15))
    order = np.random.default_rng(16).permutation(len(scores))
    first = codes < 30
    fitted = cr.anchor(cr.Platt().fit(scores, labels), scores[first], labels[first])

    def check(rows: np.ndarray, label: np.ndarray = labels) -> None:
        given = Predicted(fitted, scores[rows])
        cr.control(given, cr.naive(label[rows]), codes[rows], Precision(0.6))

    for used in (order[first[order]], np.flatnonzero(codes < 20), np.flatnonzero(codes < 45)):
        with pytest.raises(cr.DataError, match="labels must be of pairs that the map was not fitt"):
            check(used)
    check(np.flatnonzero(~first))
    check(np.flatnonzero(first), 1 - labels)


def test_repeated_scores_are_no_sign_of_used_labels() -> None:
    scores, labels, codes = draw(60, np.random.default_rng(15))
    scores = scores.round(1)
    first = codes < 30
    fitted = cr.anchor(cr.Platt().fit(scores, labels), scores[first], labels[first])
    assert not fitted.record.anchoring.row_hashes
    rest = Predicted(fitted, scores[~first])
    cr.control(rest, labels[~first], codes[~first], Precision(0.6))
    with pytest.raises(cr.DataError, match="labels must be of pairs that the map was not fitted"):
        cr.control(Predicted(fitted, scores[first]), labels[first], codes[first], Precision(0.6))


# ----- refusals -----
@pytest.mark.parametrize(
    ("promise", "options", "message"),
    [
        (Precision(0.8), {"confidence": 0.0}, "confidence must"),
        (Precision(0.8), {"confidence": None}, "confidence must"),
        (Precision(0.8), {"longest": 0}, "longest must"),
        (PooledPrecision(0.8), {}, "longest must be given for PooledPrecision, got None"),
        (0.8, {}, "promises must be of type Promise"),
        (Precision(0.8), {"cut": 0.5}, "cut must be of type Cut"),
    ],
)
def test_invalid_options_are_refused(
    promise: Promise, options: dict[str, object], message: str
) -> None:
    with pytest.raises(cr.DataError, match=message):
        cr.control([0.5, 0.6], [0, 1], [1, 2], promise, **options)


def test_invalid_promises_and_cuts_are_refused() -> None:
    with pytest.raises(cr.DataError, match="recall must lie in"):
        Recall(1.0)
    with pytest.raises(cr.DataError, match="smallest_propensity must lie in"):
        PooledPrecision(0.8, smallest_propensity=0)
    with pytest.raises(cr.DataError, match="values of Gap must lie in"):
        Gap((1.5,))
    with pytest.raises(cr.DataError, match="values of Rank must be a whole number"):
        Rank((1.5,))
    assert Threshold((0.2, 0.5, 0.2)).values == (0.5, 0.2)


def test_evidence_of_a_biased_log_is_refused() -> None:
    with pytest.raises(cr.DataError, match="labels must be unbiased for a guarantee, got ips"):
        cr.control([0.5, 0.6], cr.ips([0, 1], [0.5, 0.5]), [1, 2], Precision(0.8))


def test_of_a_sample_of_pairs_only_sums_are_promised() -> None:
    """Where users with long lists like more, a precision by user was broken in most draws."""
    rng = np.random.default_rng(21)
    probabilities, labels, codes = draw(500, rng)
    seen = rng.random(len(codes)) < 0.1
    given = probabilities[seen], cr.impressions(labels[seen], np.full(seen.sum(), 0.1)), codes[seen]
    pooled = PooledPrecision(0.5, smallest_propensity=0.1)
    for promise, cut, named in (
        (Precision(0.7), Threshold(), "Precision"),
        (Recall(0.7), Threshold(), "Recall"),
        (pooled, Rank(), "Rank"),
        (pooled, Gap(), "Gap"),
    ):
        with pytest.raises(cr.DataError, match=f"of all candidates for {named}, got a sample with"):
            cr.control(*given, promise, cut=cut, longest=ROWS)
    found = cr.control(*given, PooledPrecision(0.4), longest=ROWS)
    assert found.threshold is not None
    assert f"if no list has more than {ROWS} rows, with 95%" in str(found)


def test_a_sample_with_more_rows_than_the_longest_list_is_no_list() -> None:
    """The best ten of the sample were counted, of lists of a hundred whose best ten are worse."""
    rng = np.random.default_rng(22)
    codes = np.repeat(np.arange(1_000), 100)
    probabilities = np.tile(np.linspace(0.5, 0.99, 100), 1_000)
    labels = rng.random(len(codes)) < np.where(probabilities > 0.94, 0.3, 0.9)
    seen = rng.random(len(codes)) < 0.2
    evidence = cr.impressions(labels[seen], np.full(seen.sum(), 0.2))
    found = cr.control(probabilities[seen], evidence, codes[seen], PooledPrecision(0.7), longest=10)
    assert found.threshold is None
    whole = cr.control(probabilities, labels, codes, PooledPrecision(0.7), longest=10)
    assert whole.threshold is None
