"""Targets: one module per engine that a map can run on."""
