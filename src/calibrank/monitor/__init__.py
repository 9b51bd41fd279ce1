"""Monitoring: daily summaries in a folder, checked against the map that is deployed."""

from calibrank.monitor.check import Change, DayStatus, Status, check
from calibrank.monitor.day import Day
from calibrank.monitor.refit import refit, require_refittable
from calibrank.monitor.store import Store, window_of

__all__ = [
    "Change",
    "Day",
    "DayStatus",
    "Status",
    "Store",
    "check",
    "refit",
    "require_refittable",
    "window_of",
]
