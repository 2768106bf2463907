"""cutlock: the checkpoint of an asynchronous RL post-training run as one atomic cut."""

__version__ = "0.1.0"
