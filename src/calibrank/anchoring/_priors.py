"""What `anchor` expects before the labels: priors, and how they were chosen.

The probabilities before the labels, of base curves, slopes and sizes, were chosen by the log loss
with 30 to 10,000 labels of seven rankers each on Coat and KuaiRec, and of labels simulated from
their curves. They lie between equal ones and those of expectation maximization. It found slopes of
about half the biased fit's on either dataset alone; base curves and sizes differed between the two.
The share of the spline is a round number between two that were tried and did about as well. Sixty
simulated worlds (ten shapes, six distributions of scores, five base rates) were a check, not part
of the choice: on average they got no worse at any number of labels. How much held-out scores count
was chosen on Coat and KuaiRec among ten functions, and checked on eight runs of TREC DL 2021, on
Avazu and on forty simulated worlds: with 30 and 100 labels all five kinds gain, with more none
loses more than 1e-5 of log loss on average.
"""

from __future__ import annotations

from dataclasses import dataclass

# Prior standard deviation of the intercept: odds wrong by a factor of ten are plausible.
INTERCEPT_SD = 2.0
# That the base rate lies where a range says; otherwise priors are as wide as without a range. A
# range of a known or assumed rate says nothing about the slope. On four simulated worlds 0.75 lost
# less with a wrong range, but let ten labels leave a right one.
RANGE_PROBABILITY = 0.9
# That a curve is right within its sampling error, if it comes from labels as good as these.
LABELS_PROBABILITY = 0.98
# However narrow the range: about 5% of the odds.
SMALLEST_INTERCEPT_SD = 0.05
# Prior means of the slope, relative to the biased fit, which often overstates the slope, with
# their probabilities before the labels.
SLOPE_FACTORS = {2.0: 0.05, 1.0: 0.27, 0.5: 0.4, 0.25: 0.2, 0.0: 0.08}
# Prior standard deviation of the slope around each of them, relative to the biased fit's slope.
SLOPE_SD = 0.3
# Prior standard deviations of the first cosine of the rank's normal score, with their
# probabilities; 0 is the base curve alone. The j-th cosine has 1 / j of the first one's.
COSINE_SDS = {0.0: 0.15, 0.03: 0.2, 0.1: 0.2, 0.3: 0.25, 1.0: 0.05}
# That deviations are polynomials of the score: the rest of the probability.
POLYNOMIAL_PROBABILITY = 0.15
# Prior standard deviations of the first polynomial of the score.
POLYNOMIAL_SDS = (0.1, 0.3, 1.0, 3.0)
# Each further polynomial has this fraction of the previous one's standard deviation.
POLYNOMIAL_DECAY = 0.5
# How much of the biased fit's terms holds, with probabilities before the labels: that nothing or
# all of them holds is more likely than a part.
TERM_FACTORS = {0.0: 0.4, 0.25: 0.08, 0.5: 0.08, 0.75: 0.1, 1.0: 0.2, 1.25: 0.08, 1.5: 0.06}
# The part of held-out scores that counts without information about the rate, and the information
# that adds half of the rest: in units of k p (1 - p), for k labels of rate p.
HELD_OUT_PART = 0.25
HELD_OUT_INFORMATION = 50.0
# Beyond the second, information about the rate makes a `Spline` of the labels alone count as much
# as the posterior with about the first, in the same units.
SPLINE_INFORMATION = 600.0
SPLINE_FROM = 30.0
# Prior probability that a judge's curve has about the right shape: it saw the same documents, so
# that no exposure is between its labels and those of people. Otherwise priors are wide.
JUDGED_PROBABILITY = 0.9
# How far its level may be off: 33 judges of one collection called 2% to 60% relevant where 27%
# were.
JUDGED_INTERCEPT_SD = 1.0
# How much of its slope holds: judges are rather too sure than too unsure.
JUDGED_SLOPE_FACTORS = {1.0: 0.25, 0.75: 0.25, 0.5: 0.25, 0.25: 0.25}
# Small deviations from a judge's curve: a few labels must not bend a good one.
JUDGED_SLOPE_SD = 0.1
JUDGED_COSINE_SDS = {0.0: 1 / 3, 0.03: 1 / 3, 0.1: 1 / 3}


@dataclass(frozen=True, slots=True)
class Priors:
    """Widths of the priors of a family of curves."""

    intercept_sd: float
    slope_factors: dict[float, float]
    slope_sd: float
    cosine_sds: dict[float, float]


WIDE = Priors(INTERCEPT_SD, SLOPE_FACTORS, SLOPE_SD, COSINE_SDS)
JUDGED = Priors(JUDGED_INTERCEPT_SD, JUDGED_SLOPE_FACTORS, JUDGED_SLOPE_SD, JUDGED_COSINE_SDS)
