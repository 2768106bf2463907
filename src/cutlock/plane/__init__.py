"""Stores of rollout tensors behind one protocol."""
