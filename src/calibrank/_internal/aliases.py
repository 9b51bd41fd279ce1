"""Common column names; a module of its own because `calibrank --help` shows them and is fast."""

ALIASES = {
    "score": ("score", "scores", "prediction", "predictions", "rating"),
    "label": ("label", "labels", "liked", "clicked", "click", "target"),
    "user": ("user", "user_id", "userID", "userId", "uid"),
    "item": ("item", "item_id", "itemID", "itemId", "iid"),
    "probability": ("probability",),
    "propensity": ("propensity",),
    "weight": ("weight",),
    "time": ("time", "timestamp", "time_ms"),
}
"""Column names by role; unless a column is named, the first one present is used."""
