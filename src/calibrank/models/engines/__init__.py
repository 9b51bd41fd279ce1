"""Engines: the same training steps on a CPU and on a GPU."""
