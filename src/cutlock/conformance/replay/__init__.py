"""Walks and counterexamples on the real code, or on one with a fault switched in."""
