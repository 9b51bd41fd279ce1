"""Targets: one module per engine that maps run on, each an implementation of `Target`.

None of them loads its engine until it is used.
"""
