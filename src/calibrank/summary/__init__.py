"""Summaries: evidence pooled by score, mergeable, from which every calibrator fits."""

from calibrank.summary.builder import SummaryBuilder
from calibrank.summary.summary import Summary

__all__ = ["Summary", "SummaryBuilder"]
