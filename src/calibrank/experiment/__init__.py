"""Experiments: a spec, a grid of cells that each land whole, and tables and figures from their rows."""
