"""Summaries: evidence pooled by score, which can be merged and which every calibrator fits."""

from calibrank.summary.builder import SummaryBuilder
from calibrank.summary.summary import Summary

__all__ = ["Summary", "SummaryBuilder"]
