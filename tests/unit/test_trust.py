"""docs/trust.md: each of its statements names a test, and those that need one of their own."""

from __future__ import annotations

import ast
import asyncio
import os
import pickle
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file

import cutlock
import cutlock.samplers.config
from cutlock.alphabet import ARGUMENTS, Action
from cutlock.bundle.contents import decode_cut
from cutlock.bundle.layout import MANIFEST, POLICY, TRAINING_INFO
from cutlock.bundle.verification import verify
from cutlock.errors import BundleCorruptError, MisuseError, PlaneError
from cutlock.events import read_log
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane
from cutlock.run.directory import RunDirectory
from cutlock.samplers.builtin import InOrderSampler
from cutlock.workers.base import OPTIMIZER_FILE, WEIGHTS_FILE, PolicyShape
from cutlock.workers.torch_trainer import TorchTrainer, read_state, write_state
from tests.support.bundles import reseal_all, save
from tests.support.commands import content, cutlock_
from tests.support.corruption import Executed
from tests.support.local_runs import Run, Trouble, prompt_ids, tiny_config
from tests.support.planes import stamp_for
from tests.support.processes import Cutlock

ROOT = Path(cutlock.__file__).parents[2]
DOCUMENT = ROOT / "docs" / "trust.md"
SOURCES = sorted((ROOT / "src" / "cutlock").rglob("*.py"))

SECRETS = {
    "WANDB_API_KEY": "planted-5e1f-wandb",
    "HF_TOKEN": "planted-5e1f-hugging-face",
    "AWS_SECRET_ACCESS_KEY": "planted-5e1f-aws",
    "HTTPS_PROXY": "http://user:planted-5e1f-proxy@127.0.0.1:9",
    "CUTLOCK_TOKEN": "planted-5e1f-own",
}
PLANTED = b"planted-5e1f"


# The document.


def statements() -> list[str]:
    text = DOCUMENT.read_text()
    return [part for part in re.split(r"\n(?=- |\n)", text) if part.startswith("- ")]


def test_every_statement_names_a_test() -> None:
    assert len(statements()) >= 20
    for statement in statements():
        assert "::test_" in statement, statement


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(tests/\w+/\w+\.py)::(test_\w+)`", DOCUMENT.read_text())
    assert len(named) == DOCUMENT.read_text().count("::test_")
    for file, test in named:
        defined = {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert test in defined, f"{file}::{test}"


def test_the_readme_leads_there() -> None:
    assert "(docs/trust.md)" in (ROOT / "README.md").read_text()


# Who may write a run directory.


def test_whoever_recomputes_every_digest_has_made_a_bundle(tmp_path: Path) -> None:
    bundle = save(tmp_path / "run")
    (bundle / POLICY / WEIGHTS_FILE).write_bytes(b"weights of somebody else")
    with pytest.raises(BundleCorruptError):
        verify(bundle)
    reseal_all(bundle)
    assert decode_cut(verify(bundle)).step == 7


class Keyed(InOrderSampler):
    """A user's sampler whose options hold what they should not."""

    restorable = True

    def __init__(self, barrier: object, *, token: str) -> None:
        super().__init__(barrier, window=1)  # type: ignore[arg-type]
        assert token


CONFIG = """
prompts_per_step = 2
group_size = 2
checkpoint = { every = 1, keep = 100 }
plane = { kind = "memory" }
task = { prompts = 6, length = 2, vocabulary = 3 }
max_steps = 2

[sampler]
name = "custom"
path = "tests.unit.test_trust:Keyed"
options = { token = "from-the-configuration" }
"""


@dataclass(frozen=True)
class Trial:
    """A run in this process, and all that was printed."""

    run: Path
    printed: str


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    root = tmp_path_factory.mktemp("trial")
    (root / "run.toml").write_text(CONFIG)
    umask, threads = os.umask(0o077), torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        for name, secret in SECRETS.items():
            patch.setenv(name, secret)
        report = root / "run" / "report.json"
        done = [
            cutlock_("run", root / "run.toml", "--out", root / "run"),
            cutlock_("inspect", root / "run" / "step_2", "--json", report),
            cutlock_("audit", root / "run"),
            cutlock_("resume", root / "run" / "nowhere", code=2),
        ]
    os.umask(umask)
    torch.set_num_threads(threads)
    return Trial(root / "run", "".join(result.output for result in done))


def test_what_a_run_writes_has_the_rights_that_the_umask_leaves(trial: Trial) -> None:
    paths = [trial.run, *trial.run.rglob("*")]
    assert len(paths) > 40
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.fixture
def no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise Executed(f"{path} was imported")

    monkeypatch.setattr(cutlock.samplers.config, "load_class", refuse)


@pytest.mark.usefixtures("no_import")
def test_inspect_and_audit_import_nothing_that_a_run_names(trial: Trial) -> None:
    cutlock_("inspect", trial.run / "step_2")
    cutlock_("audit", trial.run)
    with pytest.raises(Executed, match="test_trust:Keyed was imported"):
        cutlock_("resume", trial.run)


@pytest.mark.usefixtures("no_import")
def test_a_resume_imports_nothing_that_a_corrupt_bundle_names(trial: Trial, tmp_path: Path) -> None:
    run = shutil.copytree(trial.run, tmp_path / "run")
    (run / "step_2" / POLICY / WEIGHTS_FILE).write_bytes(b"")
    cutlock_("resume", run, code=1)


# What is verified before what.


def test_pickles_are_opened_in_one_place_of_the_package() -> None:
    used: set[str] = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in {"pickle", "cloudpickle", "marshal", "shelve", "dill"}:
                    used.add(f"{source.stem}: {node.value.id}.{node.attr}")
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in {"pickle", "cloudpickle", "marshal", "shelve", "dill"}
            elif isinstance(node, ast.Name):
                assert node.id not in {"eval", "exec"}, source
    # The error that torch raises, and what a unit writes its rows with: neither opens any.
    others = {
        "torch_trainer: pickle.UnpicklingError",
        "concurrent_snapshot: pickle.Pickler",
        "concurrent_snapshot: pickle.PickleBuffer",
    }
    assert used == {"transfer_queue: pickle.load", *others}


def test_torch_loads_nothing_but_tensors_and_plain_data() -> None:
    loads = [
        {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert loads == [{"weights_only": "True"}]


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._trace,)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The files of a trainer, which all digests are supposed to fit."""
    path = tmp_path / POLICY
    path.mkdir()
    write_state(path, TorchTrainer(PolicyShape(5, 4, 3, 3, hidden=4)).capture())
    read_state(path)
    return path


@pytest.mark.parametrize("form", ["a bare pickle", "saved by torch", "inside a state dict"])
def test_a_crafted_optimizer_is_refused_and_not_executed_though_every_digest_fits(
    policy: Path, tmp_path: Path, form: str
) -> None:
    trap = Trap(tmp_path / "trace")
    if form == "a bare pickle":
        (policy / OPTIMIZER_FILE).write_bytes(pickle.dumps(trap, protocol=2))
    else:
        torch.save(trap if form == "saved by torch" else {"state": trap}, policy / OPTIMIZER_FILE)
    with pytest.raises(BundleCorruptError, match=OPTIMIZER_FILE) as caught:
        read_state(policy)
    assert "weights_only" not in str(caught.value)
    assert not (tmp_path / "trace").exists()


def test_the_crafted_optimizer_would_leave_a_trace(policy: Path, tmp_path: Path) -> None:
    torch.save({"state": Trap(tmp_path / "trace")}, policy / OPTIMIZER_FILE)
    torch.load(policy / OPTIMIZER_FILE, weights_only=False)
    assert (tmp_path / "trace").exists()


def _header(text: bytes, length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text


HEADERS = {
    "longer than any file": _header(b"", 2**63),
    "longer than this file": _header(b"{}", 10**6),
    "of a petabyte of tensors": _header(
        b'{"a":{"dtype":"F32","shape":[1125899906842624],"data_offsets":[0,4503599627370496]}}'
    ),
    "nested 100,000 deep": _header(b"[" * 100_000 + b"]" * 100_000),
    "of no text": _header(b"\xff\xfe"),
    "of tensors on top of each other": _header(
        b'{"0:a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"1:b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    )
    + b"\0" * 4,
}


@pytest.mark.parametrize("header", HEADERS)
async def test_an_absurd_header_of_tensors_is_refused_though_every_digest_fits(
    policy: Path, tmp_path: Path, header: str
) -> None:
    (policy / WEIGHTS_FILE).write_bytes(HEADERS[header])
    with pytest.raises(BundleCorruptError, match=WEIGHTS_FILE):
        read_state(policy)
    rows = tmp_path / "rows"
    rows.mkdir()
    plane = MemoryPlane(MemoryBootstrap().store)
    await plane.snapshot_index(rows)
    await plane.snapshot_rows(rows, stamp_for(plane.info))
    (rows / "unit_1.safetensors").write_bytes(HEADERS[header])
    with pytest.raises(PlaneError, match="cannot load"):
        await MemoryBootstrap().load(rows)


def test_a_run_writes_into_no_bundle_that_is_published(trial: Trial, tmp_path: Path) -> None:
    run = shutil.copytree(trial.run, tmp_path / "run")
    before = {name: content(run / name) for name in ("step_0", "step_1", "step_2")}
    whole = tmp_path / "whole.toml"
    whole.write_text(CONFIG.replace("max_steps = 2", ""))
    cutlock_("resume", run, "--config", whole)
    assert (run / "step_3" / MANIFEST).exists()
    assert {name: content(run / name) for name in before} == before
    for bundle in run.glob("step_*"):
        sealed = (bundle / MANIFEST).stat().st_mtime_ns
        if bundle.name not in before:
            assert all(path.stat().st_mtime_ns <= sealed for path in bundle.rglob("*"))


# What listens, and what is written down, by the shipped set-up.

RUN = """
prompts_per_step = 2
group_size = 2
sampler = { name = "in_order", window = 1 }
checkpoint = { every = 2 }
workers = { generators = 1, token_delay_s = 0.02 }
task = { prompts = 24, length = 3, vocabulary = 6 }
"""


@dataclass(frozen=True)
class Shipped:
    """A run as a user starts it: what listened while it ran, and what it left."""

    listening: list[tuple[object, str]]
    run: Path
    sessions: Path
    printed: str


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    root = tmp_path_factory.mktemp("shipped")
    (root / "run.toml").write_text(RUN)
    # Ray's sockets need short paths.
    with tempfile.TemporaryDirectory() as sessions, pytest.MonkeyPatch.context() as patch:
        for name, secret in SECRETS.items():
            patch.setenv(name, secret)
        patch.setenv("RAY_TMPDIR", sessions)
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1")
        with Cutlock(root / "out", "run", root / "run.toml", "--out", root / "run") as command:
            command.until((root / "run" / "step_2").exists)
            listening = command.listening()
            command.ends(code=0)
        printed = command.stdout + command.stderr
        yield Shipped(listening, root / "run", Path(sessions), printed)


@pytest.mark.real
def test_everything_that_a_run_opens_listens_on_loopback(shipped: Shipped) -> None:
    commands = " ".join(command for _, command in shipped.listening)
    for part in ("gcs_server", "raylet", "TransferQueueController", "SimpleStorageUnit"):
        assert part in commands
    elsewhere = [
        f"{address}: {command}"
        for address, command in shipped.listening
        if not address.is_loopback  # type: ignore[attr-defined]
    ]
    assert elsewhere == []


@pytest.mark.real
def test_a_set_up_that_would_listen_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from cutlock.controller.setup import run_on_ray

    def start(*args: object, **kwargs: object) -> None:
        raise AssertionError("a Ray was started")

    monkeypatch.setattr(ray, "init", start)
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    with pytest.raises(MisuseError, match="imported already"):
        asyncio.run(run_on_ray(RunDirectory(tmp_path), tiny_config()))


def planted_in(*roots: Path) -> list[Path]:
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    assert len(files) > 20
    return [path for path in files if PLANTED in path.read_bytes()]


def test_no_value_of_the_environment_is_written_down(trial: Trial) -> None:
    assert planted_in(trial.run) == []
    assert PLANTED.decode() not in trial.printed


@pytest.mark.real
def test_no_value_of_the_environment_is_written_down_by_a_real_run(shipped: Shipped) -> None:
    assert planted_in(shipped.run) == []
    assert planted_in(shipped.sessions) == []
    assert PLANTED.decode() not in shipped.printed


def test_the_event_log_holds_ids_numbers_and_reasons_only(trial: Trial) -> None:
    texts: set[str] = set()
    for log in RunDirectory(trial.run).logs().values():
        for record in read_log(log):
            for name, value in record.args.items():
                values = value if isinstance(value, list) else [value]
                assert all(isinstance(v, str | int | float | None) for v in values), record
                if any(isinstance(v, str) for v in values):
                    texts.add(name)
    ids = {"group", "groups", "spares", "index", "ledger", "bundle", "bundles"}
    assert texts <= {*ids, "sampler", "cut", "reason", "error", "ended"}
    assert texts <= {name for names in ARGUMENTS.values() for name in names}


def test_the_error_of_a_worker_is_logged_as_it_is(tmp_path: Path) -> None:
    config = tiny_config(failures={"attempts": 1, "drop_budget": 2})
    failing = prompt_ids(config)[0]
    run = Run.create(tmp_path / "run", config, Trouble(failing=frozenset({failing})))
    run.first(config)
    reasons = [
        str(record.args["reason"])
        for log in run.directory.logs().values()
        for record in read_log(log)
        if record.action == Action.DROP_GROUP
    ]
    assert reasons
    assert all(f"no rollout of {failing}" in reason for reason in reasons)


def test_the_configuration_is_saved_as_it_is(trial: Trial) -> None:
    for name in ("run.json", f"step_2/{TRAINING_INFO}"):
        saved = msgspec.json.decode((trial.run / name).read_bytes())["config"]
        assert saved["sampler"]["options"] == {"token": "from-the-configuration"}


def test_weights_are_saved_as_they_are(trial: Trial) -> None:
    weights = load_file(trial.run / "step_2" / POLICY / WEIGHTS_FILE)
    assert all(value.isfinite().all() for value in weights.values())
