"""The bundle: one checkpoint directory, complete and durable before it can be found.

`writing` makes one, `verification` proves one whole, `contents` turns one into a `Snapshot` and
back, `publication` knows the run directory that holds them.
"""
