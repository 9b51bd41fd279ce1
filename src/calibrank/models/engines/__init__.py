"""Engines: the same training step on a CPU and on a GPU."""
