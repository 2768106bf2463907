"""Trainer and generation workers: the protocols, and small torch workers that learn."""
