"""The bond as a tool: another protocol's code, held to its own specification in TLA+.

Write a spec, an `Alphabet`, a `Stepper` and an observation, and make a `Bond` of them. Then
`cover` takes every transition of the model on the code, `replay` does a counterexample with its
fault and without, and `accept` holds logs of real runs against the spec. `docs/own-protocol.md`
goes through all of it; `examples/lock` is a whole one.

Nothing here imports cutlock's own runtime: the checkpoint protocol is one user of this package.
"""

from cutlock.bond.actors import Actor
from cutlock.bond.alphabet import Alphabet
from cutlock.bond.bond import Bond, Constants, Setting, Stepper
from cutlock.bond.compare import Difference, differences
from cutlock.bond.cover import ModelPaths, cover, explored
from cutlock.bond.logs import Accepted, Journal, accept, read_journal
from cutlock.bond.patches import Patch
from cutlock.bond.processes import Processes
from cutlock.bond.replay import Ending, Replayed, read_trace, replay, walk_of
from cutlock.bond.stops import Stops
from cutlock.bond.subject import State
from cutlock.bond.table import step_table
from cutlock.bond.turns import TurnLoop
from cutlock.errors import DivergenceError, NotEnabledError, NoticedError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.graph import Graph
from cutlock.tlc.logcheck import LogSpec
from cutlock.tlc.values import Function, ModelValue, Value, record

__all__ = [
    "Accepted",
    "ActionCall",
    "Actor",
    "Alphabet",
    "Bond",
    "Constants",
    "Difference",
    "DivergenceError",
    "Ending",
    "Function",
    "Graph",
    "Journal",
    "LogSpec",
    "ModelPaths",
    "ModelValue",
    "NotEnabledError",
    "NoticedError",
    "Patch",
    "Processes",
    "Replayed",
    "Setting",
    "State",
    "Stepper",
    "Stops",
    "TurnLoop",
    "Value",
    "accept",
    "cover",
    "differences",
    "explored",
    "read_journal",
    "read_trace",
    "record",
    "replay",
    "step_table",
    "walk_of",
]
