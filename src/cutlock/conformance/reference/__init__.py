"""The protocol of the specification as plain Python, held against graphs of TLC."""
