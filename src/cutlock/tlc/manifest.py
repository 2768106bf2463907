"""The manifest: which models are checked, how, and what each of them has to show.

A manifest is TOML. `modules` and `configs` are folders, relative to it. A model, which is a
`[[models]]` table, has the fields of `Model`. A row that the model checker is known to answer
wrongly is refused when the manifest is loaded, before anything is run.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from cutlock.errors import ConfigError
from cutlock.tlc.config import Config, read_config
from cutlock.tlc.outcome import COUNTEREXAMPLES, Verdict
from cutlock.tlc.run import Job, Simulation

__all__ = [
    "Manifest",
    "Mode",
    "Model",
    "TimeClass",
    "load_manifest",
]

_FEW = 8
_TINY = 10_000  # distinct states; below, the start of Java costs more than the search
_NAMED_VERDICTS = frozenset({Verdict.INVARIANT, Verdict.TEMPORAL, Verdict.ACTION_PROPERTY})


class Mode(enum.StrEnum):
    """What a model is for."""

    SAFETY = "safety"
    LIVENESS = "liveness"
    SIMULATE = "simulate"
    """Random walks: `walks`, `depth` and `seed` count; finding nothing proves little."""
    GRAPH = "graph"
    """The reachable graph is read, with the action of every edge."""
    MUTANT = "mutant"
    """A protection is broken; `expected = "success"` says that it is known to do no harm."""
    WITNESS = "witness"
    """The negation of something that has to be reachable, so it is violated."""


class TimeClass(enum.StrEnum):
    """How long a model may take; a class includes the ones before it."""

    QUICK = "quick"
    FULL = "full"
    DEEP = "deep"

    @property
    def limit_s(self) -> float:
        """Time limit of one model that names none."""
        return {TimeClass.QUICK: 180.0, TimeClass.FULL: 1200.0, TimeClass.DEEP: 7200.0}[self]

    def includes(self, other: TimeClass) -> bool:
        """Whether `other` is run when this class is asked for."""
        order = list(TimeClass)
        return order.index(other) <= order.index(self)


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: a model and what it has to show."""

    name: str
    module: str
    """Without `.tla`; in one of the folders of modules."""
    config: str
    """File in the folder of configurations."""
    mode: Mode
    time: TimeClass
    why: str
    """Why these bounds suffice, or what the row shows."""
    workers: int = 1
    expected: Verdict = Verdict.SUCCESS
    property: str | None = None
    """The invariant or property that has to fall, as the configuration names it."""
    distinct: int | None = None
    """Distinct states; required where the search is to be complete, for mutants optional."""
    deadlock: bool = True
    """Whether a state without a successor is an error."""
    coverage: bool | None = None
    """Whether every action has to happen; left out: in safety models that are to succeed."""
    never: tuple[str, ...] = ()
    """Actions that may not happen at these bounds."""
    walks: int = 1000
    depth: int = 100
    seed: int = 0
    heap: str = "2g"
    limit_s: float | None = None

    def covers(self) -> bool:
        """Whether every action has to happen."""
        if self.coverage is not None:
            return self.coverage
        return self.mode is Mode.SAFETY and self.expected is Verdict.SUCCESS

    def checks_liveness(self) -> bool:
        """Whether the row is about a temporal property that is not an action property."""
        return self.mode is Mode.LIVENESS or self.expected is Verdict.TEMPORAL


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All models of a manifest, and where their files are."""

    modules: tuple[str, ...]
    configs: str
    models: tuple[Model, ...]
    root: Path = Path()
    """The manifest's folder; not written in it."""

    def select(
        self,
        names: Sequence[str] = (),
        time: TimeClass = TimeClass.QUICK,
        modes: Sequence[Mode] = tuple(Mode),
    ) -> list[Model]:
        """The named models, whatever their class; without names, all of the class and modes.

        Raises:
            ConfigError: there is no such model.
        """
        named = {model.name: model for model in self.models if model.mode in modes}
        unknown = [name for name in names if name not in named]
        if unknown:
            near = difflib.get_close_matches(unknown[0], named, cutoff=0.0)
            raise ConfigError(
                f"no model {', '.join(unknown)}; there are: {', '.join(near)} and "
                f"{len(named) - len(near)} more, see `cutlock check -n`"
                if len(named) > _FEW
                else f"no model {', '.join(unknown)}; there are: {', '.join(named)}"
            )
        if names:
            return [named[name] for name in names]
        return [model for model in named.values() if time.includes(model.time)]

    def config(self, model: Model) -> Config:
        """The model's configuration.

        Raises:
            ConfigError: it cannot be read, or has a keyword that the pinned TLC lacks.
        """
        return read_config(self.root / self.configs / model.config)

    def module_path(self, name: str) -> Path | None:
        """The file of a module in the first folder that has it; None if none has."""
        files = (self.root / folder / f"{name}.tla" for folder in self.modules)
        return next((file for file in files if file.is_file()), None)

    def job(self, model: Model) -> Job:
        """How to run the model.

        Raises:
            ConfigError: the module is in none of the folders.
        """
        folders = [self.root / folder for folder in self.modules]
        module = self.module_path(model.module)
        if module is None:
            raise ConfigError(
                f"model {model.name}: no {model.module}.tla in {', '.join(map(str, folders))}; "
                "mend its module, or the list of modules, in the manifest"
            )
        simulation = Simulation(model.walks, model.depth, model.seed)
        return Job(
            module=module,
            config=self.root / self.configs / model.config,
            workers=model.workers,
            deadlock=model.deadlock,
            coverage=model.covers(),
            simulation=simulation if model.mode is Mode.SIMULATE else None,
            dump=model.mode is Mode.GRAPH,
            libraries=tuple(folder for folder in folders if folder != module.parent),
            heap=model.heap,
            tiny=model.distinct is not None and model.distinct < _TINY,
            limit_s=model.limit_s or model.time.limit_s,
        )


def load_manifest(path: Path) -> Manifest:
    """Read a manifest and refuse every row that breaks a rule of checking.

    Raises:
        ConfigError: it cannot be read, or rows are refused; names each and says why.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"manifest {path} cannot be read: {error}; "
            "name another file with --manifest, or leave it out for the shipped one"
        ) from error
    try:
        read = msgspec.toml.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"manifest {path} is not in order: {error}; mend that place") from error
    manifest = msgspec.structs.replace(read, root=path.absolute().parent)
    problems = list(_problems(manifest))
    if problems:
        raise ConfigError(f"manifest {path}: {'; '.join(problems)}; mend these rows")
    return manifest


def _problems(manifest: Manifest) -> Iterator[str]:
    names = [model.name for model in manifest.models]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name}: two models have this name"
    for model in manifest.models:
        try:
            config = manifest.config(model)
            manifest.job(model)
        except ConfigError as error:
            yield f"{model.name}: {error}"
            continue
        for problem in [*_row_problems(model), *_config_problems(model, config)]:
            yield f"{model.name}: {problem}"


def _row_problems(model: Model) -> Iterator[str]:
    complete = model.expected is Verdict.SUCCESS and model.mode is not Mode.SIMULATE
    if not model.why.strip():
        yield "`why` is empty; say why the bounds suffice"
    if model.workers < 1:
        yield f"workers = {model.workers}; at least one"
    if model.expected not in COUNTEREXAMPLES | {Verdict.SUCCESS, Verdict.ASSUMPTION}:
        yield f"expected = {model.expected.value!r} is a failure of the check, not a result"
    if model.mode is Mode.WITNESS and model.expected not in COUNTEREXAMPLES:
        yield "a witness has to be violated; set `expected` and `property`"
    if model.mode is Mode.GRAPH and model.expected is not Verdict.SUCCESS:
        yield "a graph is complete only where nothing is violated"
    if (model.expected in _NAMED_VERDICTS) != (model.property is not None):
        yield f"expected = {model.expected.value!r} with property = {model.property!r}"
    if complete and model.distinct is None and model.mode is not Mode.MUTANT:
        yield "`distinct` is missing; without it a model may become empty without notice"
    if model.expected is Verdict.DEADLOCK and not model.deadlock:
        yield "expected = 'deadlock' with deadlock = false"
    if model.never and not model.covers():
        yield "`never` without coverage; nobody counts the actions"
    # One property cannot be told from another, several workers miss violations.
    if model.checks_liveness() and model.workers != 1:
        yield f"liveness with workers = {model.workers}; TLC misses violations, use 1"
    if model.mode in (Mode.MUTANT, Mode.GRAPH) and model.workers != 1:
        yield f"mode {model.mode.value} with workers = {model.workers}; only 1 is reproducible"
    if model.mode is Mode.SIMULATE and (model.distinct is not None or model.covers()):
        yield "random walks count neither distinct states nor actions"


def _config_problems(model: Model, config: Config) -> Iterator[str]:
    if model.property is not None and model.property not in config.promises:
        listed = ", ".join(config.promises) or "nothing"
        yield f"property {model.property} is not in {config.path.name}, which lists {listed}"
    if model.checks_liveness():
        count = len(config["properties"])
        if count != 1:
            yield f"liveness with {count} properties in {config.path.name}; one a run"
        for section in ("symmetry", "view", "constraints", "action_constraints"):
            if section in config.sections:
                yield f"liveness with {section} in {config.path.name}; TLC answers wrongly"
    if model.mode is Mode.GRAPH and "symmetry" in config.sections:
        yield f"a graph with symmetry in {config.path.name} loses edges"
    if model.mode is Mode.GRAPH and "action_constraints" not in config.sections:
        yield f"a graph needs an ACTION_CONSTRAINT in {config.path.name} that prints the action"
