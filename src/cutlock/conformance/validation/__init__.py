"""Logs of real runs, held against the specification by TLC."""
