"""Experiments: TOML specs, a grid of cells that are run and saved one by one, tables, figures."""
