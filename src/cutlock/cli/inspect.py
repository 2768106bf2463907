"""The command `inspect`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from cutlock.bundle.contents import TrainingInfo
from cutlock.bundle.layout import ARTIFACTS, MANIFEST, parse_name
from cutlock.bundle.manifest import Manifest
from cutlock.bundle.publication import Scan, scan
from cutlock.cli.command import ExitCode, ToolCommand, current_terminal
from cutlock.cli.options import json_option
from cutlock.errors import BundleNotFoundError
from cutlock.records import Snapshot
from cutlock.report.terminal import key_values, table
from cutlock.run.restore import read_bundle

__all__ = ["Inspection", "inspect", "names_of"]


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle holds."""

    info: TrainingInfo
    cut: Snapshot
    manifest: Manifest
    artifacts: dict[str, str]
    """What each file holds, in words."""


@click.command(
    cls=ToolCommand,
    result=Inspection,
    examples=("cutlock inspect runs/first/step_8", "cutlock inspect runs/first/step_8 --json -"),
    exits={
        ExitCode.OK: "every digest holds",
        ExitCode.FAILED: "a file is missing, altered, extra, or of another save",
        ExitCode.USAGE: "wrong usage, or no bundle there",
    },
)
@click.argument("bundle", type=click.Path(path_type=Path))
@json_option
def inspect(bundle: Path) -> Inspection:
    """Verify BUNDLE (a step_N directory) and say what it holds; unpickles nothing."""
    if not bundle.exists() and (bundle.parent / "run.json").exists():
        raise BundleNotFoundError(
            f"{bundle} does not exist; the run has the bundles "
            f"{names_of(scan(bundle.absolute().parent))}"
        )
    if not bundle.exists():
        raise BundleNotFoundError(f"{bundle} does not exist; give the path of a step_N directory")
    if (bundle / "run.json").exists():
        raise BundleNotFoundError(
            f"{bundle} is the directory of a run; give one of its bundles: "
            f"{names_of(scan(bundle.absolute()))}"
        )
    if not (bundle / MANIFEST).exists() and parse_name(bundle.name) is None:
        raise BundleNotFoundError(
            f"{bundle} is no bundle, it has no {MANIFEST}; give the path of a step_N directory"
        )
    path = bundle.absolute()
    verified, info, cut = read_bundle(path)
    values: list[tuple[str, object]] = [
        ("run", info.run_id),
        ("sequence", verified.manifest.sequence),
        ("step / version", f"{cut.step} / {cut.version}"),
        ("sampler, cursor", f"{info.sampler}, {cut.cursor}"),
        ("loader", f"epoch {cut.loader.epoch}, {cut.loader.position} prompts served"),
        ("index", f"{len(cut.index)} finished groups"),
        ("ledger", f"{len(cut.ledger)} groups owed"),
        ("spare pool", f"{len(cut.spare_pool)} prompts"),
        ("shortfall", dict(cut.shortfall) or "none"),
        ("trained", f"{info.trained_groups} groups, chain {info.trained_chain[:16]}"),
        ("saved by", f"incarnation {info.incarnation}, after {info.log_records} log records"),
        ("packages", ", ".join(f"{k} {v}" for k, v in info.packages.items())),
    ]
    terminal = current_terminal()
    terminal.show(key_values(f"{bundle.name}: verified", values))
    files = [(file.name, file.size, file.sha256[:16]) for file in verified.manifest.files]
    terminal.show(table("Files", ("name", "bytes", "sha256"), files))
    return Inspection(
        info=info,
        cut=cut,
        manifest=verified.manifest,
        artifacts={artifact.name: artifact.content for artifact in ARTIFACTS},
    )


def names_of(found: Scan) -> str:
    """The bundles that can be resumed from, for a message."""
    return ", ".join(bundle.path.name for bundle in found.bundles) or "none"
