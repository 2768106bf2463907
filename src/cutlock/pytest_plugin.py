"""The pytest plugin: counterexamples, graphs and logs of a protocol as tests of its code.

Two fixtures do the work. `cutlock_trace` makes a test for each file of the trace folder, and
needs no Java; `cutlock_model` has TLC check the model, make its graph and accept logs, and marks
its tests `cutlock_tlc`. Options say which bond, which folder, which plane and which seed; each
is also a line of the pytest configuration. See `docs/own-protocol.md`.

Nothing but pytest is imported before a test asks for one of them.

PYTEST_DONT_REWRITE: nothing is asserted here, and a project that loads it twice, by name and as
an installed plugin, would be warned otherwise.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

if TYPE_CHECKING:
    from cutlock.bond import Accepted, ActionCall, Bond, Graph, ModelPaths, Replayed
    from cutlock.tlc.itf import Counterexample
    from cutlock.tlc.run import Toolchain

__all__ = ["ModelTests", "TraceTests"]

_PLANES = ("memory", "transfer_queue")
_SUFFIX = ".itf.json"
_OPTIONS = {
    "bond": ("", "MODULE:NAME", "the bond of the protocol, as `bond:LOCK`"),
    "traces": ("traces", "DIR", "folder of counterexamples, NAME.itf.json"),
    "plane": (_PLANES[0], "PLANE", f"where stored things live: {' or '.join(_PLANES)}"),
    "seed": ("0", "N", "for whatever is random"),
}

T = TypeVar("T")


# Options.


@dataclass(frozen=True)
class _Options:
    bond: str
    traces: Path
    plane: str
    seed: int


_KEY = pytest.StashKey[_Options]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, each as a line of the configuration too."""
    group = parser.getgroup("cutlock", "a protocol's code, held to its specification")
    for name, (default, metavar, what) in _OPTIONS.items():
        group.addoption(
            f"--cutlock-{name}", metavar=metavar, help=f"{what} [default: {default or 'none'}]"
        )
        parser.addini(f"cutlock_{name}", what, default=default)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options; a wrong one ends the run before anything is collected."""
    config.addinivalue_line(
        "markers",
        "cutlock_traces(*patterns): traces that the test is for, by file name without "
        f"{_SUFFIX}, as `lost_*`; without it all of the folder",
    )
    config.addinivalue_line(
        "markers", "cutlock_tlc: starts Java and TLC; set by the fixture `cutlock_model`"
    )
    plane, seed = (_given(config, name) for name in ("plane", "seed"))
    if plane not in _PLANES:
        raise pytest.UsageError(
            f"unknown plane {plane!r}; choose from {', '.join(_PLANES)} "
            "(--cutlock-plane, or cutlock_plane in the pytest configuration)"
        )
    if not seed.removeprefix("-").isdecimal():
        raise pytest.UsageError(
            f"seed {seed!r} is no whole number; give one with "
            "--cutlock-seed, or as cutlock_seed in the pytest configuration"
        )
    config.stash[_KEY] = _Options(_given(config, "bond"), _folder(config), plane, int(seed))


def _given(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"cutlock_{name}")
    return str(config.getini(f"cutlock_{name}") if given is None else given)


def _folder(config: pytest.Config) -> Path:
    """On the command line relative to where pytest was started, else to the configuration."""
    given = config.getoption("cutlock_traces")
    if given is not None:
        return config.invocation_params.dir / str(given)
    home = config.rootpath if config.inipath is None else config.inipath.parent
    return home / str(config.getini("cutlock_traces"))


def pytest_report_header(config: pytest.Config) -> str | None:
    """What a failure can be repeated with."""
    options = config.stash[_KEY]
    if not options.bond:
        return None
    return f"cutlock: bond {options.bond}, plane {options.plane}, seed {options.seed}"


# Collection.


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each trace."""
    if "cutlock_trace" not in metafunc.fixturenames:
        return
    folder = metafunc.config.stash[_KEY].traces
    traces = sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else []
    if not traces:
        what = f"has no *{_SUFFIX}" if folder.is_dir() else "is not there"
        raise pytest.Collector.CollectError(
            f"the trace folder {folder} {what}; write counterexamples with `cutlock mutants "
            f"--manifest MANIFEST --traces {folder} --write`, or name another folder with "
            "--cutlock-traces, or cutlock_traces in the pytest configuration"
        )
    for marker in metafunc.definition.iter_markers("cutlock_traces"):
        chosen = [
            path
            for path in traces
            if any(fnmatchcase(_name(path), pattern) for pattern in marker.args)
        ]
        if not chosen:
            raise pytest.Collector.CollectError(
                f"no trace of {folder} matches {', '.join(map(repr, marker.args))}; there are: "
                f"{', '.join(map(_name, traces))}"
            )
        traces = chosen
    metafunc.parametrize("cutlock_trace", traces, ids=map(_name, traces), indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs Java, so that it can be left out."""
    if "cutlock_model" in getattr(item, "fixturenames", ()):
        item.add_marker("cutlock_tlc")


def _name(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX)


# What tests ask for.


class TraceTests:
    """One counterexample of the folder, and what has to come of it."""

    def __init__(self, path: Path, example: Counterexample, bond: Bond[Any], options: _Options):
        self.path = path
        self.example = example
        self.bond = bond
        self._options = options

    def breaks(self) -> Replayed:
        """Fail unless the code with the fault breaks the promise in the same step."""
        __tracebackhide__ = True
        from cutlock.bond.expect import expect_breaks

        return self._expect(expect_breaks)

    def holds(self) -> Replayed:
        """Fail if the code as it is breaks the promise."""
        __tracebackhide__ = True
        from cutlock.bond.expect import expect_holds

        return self._expect(expect_holds)

    def _expect(self, expected: Callable[..., Replayed]) -> Replayed:
        __tracebackhide__ = True
        options = self._options
        return _or_fail(
            lambda: expected(self.bond, self.example, plane=options.plane, seed=options.seed)
        )


class ModelTests:
    """The model of the protocol: TLC is asked."""

    def __init__(self, bond: Bond[Any], options: _Options) -> None:
        self.bond = bond
        self._options = options
        self._graphs: dict[str, Graph] = {}

    @cached_property
    def toolchain(self) -> Toolchain:
        """Java and TLC; see `cutlock doctor`."""
        from cutlock.tlc.run import find_toolchain

        return find_toolchain()

    def check(self) -> None:
        """Fail unless TLC finds models, mutants and kept counterexamples as they should be."""
        __tracebackhide__ = True
        from cutlock.bond.expect import expect_checked

        _or_fail(lambda: expect_checked(self.bond, self.toolchain, self._options.traces))

    def graph(self, model: str) -> Graph:
        """The reachable graph of a model of mode `graph`; it is made once a session."""
        __tracebackhide__ = True
        from cutlock.bond import explored

        if model not in self._graphs:
            self._graphs[model] = _or_fail(lambda: explored(self.bond, model, self.toolchain))
        return self._graphs[model]

    def cover(self, model: str) -> ModelPaths:
        """Fail unless the code does every edge of the graph and comes to the same states."""
        __tracebackhide__ = True
        from cutlock.bond.expect import expect_covered

        graph, options = self.graph(model), self._options
        return _or_fail(
            lambda: expect_covered(self.bond, model, graph, plane=options.plane, seed=options.seed)
        )

    def accept(self, logs: Mapping[str, Sequence[ActionCall]]) -> tuple[Accepted, ...]:
        """Fail unless every log, by its name, is a behaviour of the specification."""
        __tracebackhide__ = True
        from cutlock.bond.expect import expect_accepted

        return _or_fail(lambda: expect_accepted(self.bond, logs, self.toolchain))


@pytest.fixture
def cutlock_trace(request: pytest.FixtureRequest) -> TraceTests:
    """A counterexample of the trace folder: one test for each file."""
    from cutlock.bond import read_trace

    options = request.config.stash[_KEY]
    path: Path = request.param
    return TraceTests(path, _or_fail(lambda: read_trace(path)), _bond(options), options)


@pytest.fixture(scope="session")
def cutlock_model(request: pytest.FixtureRequest) -> ModelTests:
    """The model of the protocol; its tests start Java and TLC."""
    options = request.config.stash[_KEY]
    return ModelTests(_bond(options), options)


@pytest.fixture(scope="session")
def cutlock_plane(request: pytest.FixtureRequest) -> str:
    """The plane that was chosen."""
    return request.config.stash[_KEY].plane


@pytest.fixture(scope="session")
def cutlock_seed(request: pytest.FixtureRequest) -> int:
    """The seed for what is random in a test, so that a failure can be repeated."""
    return request.config.stash[_KEY].seed


def _bond(options: _Options) -> Bond[Any]:
    from cutlock.bond import Bond

    module, colon, name = options.bond.partition(":")
    if not (module and colon and name):
        _fail(
            f"the bond {options.bond!r} is not MODULE:NAME; write cutlock_bond = bond:LOCK into "
            "the pytest configuration, or give --cutlock-bond"
        )
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        _fail(
            f"the module {module!r} of the bond {options.bond!r} is not found; add its folder "
            "to `pythonpath` in the pytest configuration"
        )
    if not isinstance(found, Bond):
        _fail(
            f"{options.bond!r} is {type(found).__name__}, no Bond; name one with cutlock_bond in "
            "the pytest configuration, or with --cutlock-bond"
        )
    return found


def _or_fail(work: Callable[[], T]) -> T:
    """Errors of the family are told by their text alone: it holds what is needed."""
    __tracebackhide__ = True
    from cutlock.errors import CutlockError, DivergenceError, NoPlaceError

    try:
        return work()
    except NoPlaceError as error:
        pytest.skip(str(error))
    except CutlockError as error:
        broke = error.__cause__ if isinstance(error, DivergenceError) else None
        if broke is not None and not isinstance(broke, CutlockError):
            raise  # where the code broke is of interest
        told = str(error)
    return _fail(told)


def _fail(text: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(text, pytrace=False)
