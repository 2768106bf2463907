"""The commands around a run, one module each."""
