from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cutlock.alphabet import Action
from cutlock.cli import models as commands
from cutlock.cli.paths import paths
from cutlock.errors import ToolError, ToolMissingError
from cutlock.tlc.graph import Graph, graph_from_json, graph_to_json
from cutlock.tlc.run import Toolchain
from tests.replay.paths_graphs import graph_of_run
from tests.replay.script import Script
from tests.tlc.playback import Player

CONFIG = """\
CONSTANTS
  Batches = 2
  PerEpoch = 2
  Member = {1}
  Window = 1
  Sampler = "in_order"
  SpareMark = 0
  MaxFailures = 0
  Capacity = 8
  Ordered = TRUE
  Units = {"u1"}
  Narrow = FALSE
SPECIFICATION Spec
ACTION_CONSTRAINT Prints
"""


class Models:
    """A manifest with one graph, and the graph as a file."""

    def __init__(self, folder: Path, graph: Graph) -> None:
        self.folder = folder
        self.graph = graph
        folder.mkdir()
        (folder / "Small.tla").write_text("never read")
        (folder / "small.cfg").write_text(CONFIG)
        self.describe(len(graph.nodes))
        self.keep(graph)

    def describe(self, distinct: int, more: str = "") -> None:
        (self.folder / "manifest.toml").write_text(
            'modules = ["."]\nconfigs = "."\n[[models]]\nname = "small"\nmodule = "Small"\n'
            'config = "small.cfg"\nmode = "graph"\ntime = "quick"\nwhy = "small"\n'
            f"distinct = {distinct}\n{more}"
        )

    def keep(self, graph: Graph) -> None:
        (self.folder / "small.json").write_bytes(graph_to_json(graph))

    def run(self, *arguments: str, graphs: bool = True) -> Result:
        given = ["--manifest", str(self.folder / "manifest.toml"), "--workers", "1"]
        given += ["--save", str(self.folder / "saved"), "--json", str(self.folder / "out.json")]
        given += ["--graphs", str(self.folder)] if graphs else []
        return CliRunner().invoke(paths, [*given, *arguments])

    @property
    def report(self) -> dict[str, object]:
        report = json.loads((self.folder / "out.json").read_text())
        assert isinstance(report, dict)
        return report


@pytest.fixture
def models(tmp_path: Path, ram_path: Path) -> Models:
    with Script(ram_path / "run") as script:
        script.start().save().to(Action.COMMIT_GROUP)
    return Models(tmp_path / "models", graph_of_run(script))


@pytest.fixture
def player(tmp_path: Path) -> Player:
    """A Java that plays recorded outputs."""
    return Player(tmp_path / "player")


def test_all_equal_is_exit_0_and_counted(models: Models) -> None:
    result = models.run()
    assert result.exit_code == 0, result.output
    edges = len(models.graph.edges)
    report = models.report
    assert f"{edges} of {edges} edges equal" in result.output
    (model,) = report.pop("models")  # type: ignore[misc]
    seconds = report.pop("seconds")
    assert report == {
        "command": "paths",
        "schema_version": 1,
        "ok": True,
        "plane": "memory",
        "sample": None,
        "edges": edges,
        "covered": edges,
        "walks": 1,
        "steps": edges,
        "exit_code": 0,
    }
    assert model == {
        "name": "small",
        "states": edges + 1,
        "edges": edges,
        "covered": edges,
        "walks": 1,
        "steps": edges,
        "seconds": seconds,
        "diverged": 0,
        "divergence": None,
        "why_not": [],
    }


def test_a_divergence_is_exit_1_and_shown_in_full(models: Models) -> None:
    edges = models.graph.edges
    models.keep(replace(models.graph, edges=(*edges, replace(edges[0], target=2))))
    result = models.run()
    assert result.exit_code == 1
    trace = models.folder / "saved" / "small_BeginRun_1.itf.json"
    assert "small: step 1, BeginRun(): specification and code differ" in result.output
    assert "likely: " in result.output
    assert str(trace) in result.output
    assert trace.exists()
    assert models.report["ok"] is False


def test_a_graph_of_another_model_is_exit_1(models: Models) -> None:
    models.describe(7)
    result = models.run()
    assert result.exit_code == 1
    assert f"has {len(models.graph.nodes)} states, the manifest says 7" in result.output


def test_a_sample_says_so(models: Models) -> None:
    result = models.run("--sample", "1")
    assert result.exit_code == 0
    assert "1 walks of each model" in result.output
    assert models.report["sample"] == 1


def test_a_graph_that_was_not_exported_is_wrong_usage(models: Models) -> None:
    (models.folder / "small.json").unlink()
    result = models.run()
    assert result.exit_code == 2
    assert f"`cutlock check small --graphs {models.folder}`" in result.stderr


def test_an_unknown_model_is_wrong_usage(models: Models) -> None:
    result = models.run("nope")
    assert result.exit_code == 2
    assert "no model nope; there are: small" in result.stderr


def test_a_missing_tool_is_exit_3(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(jar: Path | None) -> Toolchain:
        raise ToolMissingError("no Java; install one")

    monkeypatch.setattr(commands, "find_toolchain", missing)
    result = models.run(graphs=False)
    assert result.exit_code == 3
    assert "error: no Java; install one" in result.stderr


def test_a_checker_that_fails_is_exit_4(
    models: Models, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "find_toolchain", lambda jar: player.plays("parse"))
    result = models.run(graphs=False)
    assert result.exit_code == 4
    assert "small: expected success, got parse_error" in result.output


def test_no_graph_in_time_is_exit_5(
    models: Models, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "find_toolchain", lambda jar: player.runs("exec sleep 600"))
    models.describe(7, "limit_s = 0.1\n")
    result = models.run(graphs=False)
    assert result.exit_code == 5
    assert "small: expected success, got budget" in result.output


def test_a_graph_is_read_as_it_was_written(models: Models) -> None:
    data = graph_to_json(models.graph)
    read = graph_from_json(data)
    assert [node.state for node in read.nodes] == [node.state for node in models.graph.nodes]
    assert (read.initial, read.edges) == (models.graph.initial, models.graph.edges)
    assert graph_to_json(read) == data


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("[", "not a graph that was saved as JSON"),
        ("{}", "missing required field `vars`"),
        ('{"vars":["a"],"initial":[0],"nodes":[[1,2]],"edges":[]}', "longer than argument 1"),
        ('{"vars":["a"],"initial":[0],"nodes":[[{"#x":1}]],"edges":[]}', "is not a value"),
        ('{"vars":["a"],"initial":[0],"nodes":[[1]],"edges":[[0,"Go",{},1]]}', "names number 1"),
    ],
)
def test_what_is_no_graph_is_refused(data: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        graph_from_json(data.encode())
