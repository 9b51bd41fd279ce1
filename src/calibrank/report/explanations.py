"""What each metric means, in plain words."""

EXPLANATIONS = {
    "LogLoss": "The mean surprise at what happened, in nats. A proper score: least when the probabilities are the true "
    "ones, so methods may be compared by it. Lower is better.",
    "Brier": "The mean squared distance between probability and outcome. A proper score too, kinder to bold mistakes. "
    "Lower is better.",
    "ECE": "Expected calibration error: rows are put into 15 equally wide bins of probability, and this is the mean "
    "gap between what a bin promised and what happened. Lower is better; a constant at the base rate has 0, so read it "
    "beside a proper score.",
    "MCE": "Maximum calibration error: the gap of the worst bin. One lonely row can decide it. Lower is better.",
    "CalibrationInTheLarge": "Mean prediction over mean outcome. Above 1 is optimistic, below 1 pessimistic. It tells "
    "of the level alone. Nearer 1 is better.",
    "ECE of top 5": "Calibration error of only the five highest scores of each user: what is really shown. "
    "Lower is better.",
    "Miscalibration": "What the best increasing recalibration would take off the Brier score: calibration error "
    "without bins to choose. Lower is better.",
    "Discrimination": "What the order of the probabilities is worth, in Brier score. Every strictly increasing map has "
    "the same: calibration cannot buy it. Higher is better.",
    "NDCG@5": "How near the liked items stand to the top of each user's five best, 1 at most. Higher is better.",
    "Recall@5": "The share of each user's liked items among the five best. Higher is better.",
}
"""By the metric's name."""
BETTER = {
    "CalibrationInTheLarge": "one",
    "Discrimination": "higher",
    "NDCG@5": "higher",
    "Recall@5": "higher",
}
"""Which way a metric improves; lower unless it is here."""
