"""Runs TLC, the model checker of TLA+, and believes it only as far as it has shown to be right.

`check` compares what TLC said about each row of a manifest with what the row expects;
`selftest` shows first that TLC still finds known faults. Nothing here imports the runtime.
"""
