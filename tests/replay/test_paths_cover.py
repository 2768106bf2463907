"""Every edge of the state graphs of the manifest, on the real code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import cutlock
from cutlock.cli.paths import paths
from cutlock.tlc.manifest import Mode, Model, TimeClass, load_manifest

MANIFEST = Path(cutlock.__file__).parents[2] / "model_check" / "manifest.toml"


def graphs(*classes: TimeClass) -> list[str]:
    models: list[Model] = [*load_manifest(MANIFEST).models]
    return [model.name for model in models if model.mode is Mode.GRAPH and model.time in classes]


def require_all_edges(folder: Path, name: str) -> None:
    out = folder / "out.json"
    arguments = [name, "--manifest", str(MANIFEST), "--json", str(out), "--save", str(folder)]
    result = CliRunner().invoke(paths, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert [model["name"] for model in report["models"]] == [name]
    for model in report["models"]:
        assert model["covered"] == model["edges"] > 10_000


@pytest.mark.tlc
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", graphs(TimeClass.QUICK))
def test_every_edge_of_a_quick_graph_is_walked_and_equal(name: str, tmp_path: Path) -> None:
    require_all_edges(tmp_path, name)


@pytest.mark.tlc
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", graphs(TimeClass.FULL, TimeClass.DEEP))
def test_every_edge_of_a_larger_graph_is_walked_and_equal(name: str, tmp_path: Path) -> None:
    require_all_edges(tmp_path, name)
