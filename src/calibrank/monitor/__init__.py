"""Monitoring: daily summaries in a folder, checked against the map that is deployed."""

from calibrank.monitor.check import Change, DayStatus, Status, check
from calibrank.monitor.day import Day, digest_of_map
from calibrank.monitor.refit import refit, require_refittable
from calibrank.monitor.store import Store, window_of
from calibrank.monitor.windows import ScoreDrift, score_drift

__all__ = [
    "Change",
    "Day",
    "DayStatus",
    "ScoreDrift",
    "Status",
    "Store",
    "check",
    "digest_of_map",
    "refit",
    "require_refittable",
    "score_drift",
    "window_of",
]
