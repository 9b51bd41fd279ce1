"""Data to learn and test on."""
