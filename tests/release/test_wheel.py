"""The wheel, installed outside the source tree and used in an empty directory."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

import cutlock
from tests.support.installed import ROOT, Installed


def test_what_is_tested_is_the_wheel(installed: Installed, tmp_path: Path) -> None:
    where = installed.run(
        installed.python, "-c", "import cutlock; print(cutlock.__file__)", cwd=tmp_path
    )
    assert Path(where.strip()).is_relative_to(installed.environment)
    assert not Path(where.strip()).is_relative_to(ROOT)


def test_package_metadata_and_command_line_say_the_same_version(
    installed: Installed, tmp_path: Path
) -> None:
    metadata = "import importlib.metadata as m; print(m.version('cutlock'))"
    said = installed.run(installed.python, "-c", metadata, cwd=tmp_path)
    assert said.strip() == cutlock.__version__
    assert installed.cutlock("--version", cwd=tmp_path).split()[-1] == cutlock.__version__
    assert f"## {cutlock.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_has_types_licence_and_everything_that_the_commands_read(
    installed: Installed,
) -> None:
    (wheel,) = installed.distributions.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "cutlock/py.typed" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    for folder in ("examples", "model_check", "spec", "traces"):
        there = {
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        shipped = {name.removeprefix("cutlock/_shipped/") for name in names}
        assert there
        assert not there - shipped
    assert not [name for name in names if name.startswith(("tests", "bench")) or ".pyc" in name]


def test_the_source_distribution_has_what_its_tests_need(installed: Installed) -> None:
    (archive,) = installed.distributions.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    for needed in ("LICENSE", "CHANGELOG.md", "tests/conftest.py", "bench/slots.py", "Makefile"):
        assert needed in names


class TestCommands:
    """Those that need nothing but what ships."""

    def test_the_doctor_finds_java_and_the_checker(
        self, installed: Installed, tmp_path: Path
    ) -> None:
        installed.cutlock("doctor", cwd=tmp_path)

    @pytest.mark.tlc
    def test_a_model_is_checked(self, installed: Installed, tmp_path: Path) -> None:
        assert "graph_crash" in installed.cutlock("check", "graph_crash", cwd=tmp_path)

    @pytest.mark.tlc
    def test_a_mutant_falls(self, installed: Installed, tmp_path: Path) -> None:
        assert "cursor_early" in installed.cutlock("mutants", "cursor_early", cwd=tmp_path)

    @pytest.mark.tlc
    def test_paths_of_a_model_are_walked(self, installed: Installed, tmp_path: Path) -> None:
        said = installed.cutlock(
            "paths", "graph_crash", "--sample", 2, "--workers", 1, cwd=tmp_path
        )
        assert "edges equal" in said

    @pytest.mark.tlc
    def test_a_shipped_run_is_validated_by_its_name(
        self, installed: Installed, tmp_path: Path
    ) -> None:
        assert "accepted" in installed.cutlock("validate", "in_order", cwd=tmp_path)

    def test_a_shipped_trace_is_replayed_by_its_name(
        self, installed: Installed, tmp_path: Path
    ) -> None:
        before = _content(installed)
        assert "cursor_early.itf.json" in installed.cutlock("replay", "cursor_early", cwd=tmp_path)
        assert _content(installed) == before, "something was written into the package"
        assert not [*tmp_path.iterdir()]
        broken = installed.cutlock(
            "replay", "cursor_early", "--fault", "auto", cwd=tmp_path, code=1
        )
        assert "BROKEN, as in the counterexample" in broken

    def test_the_shipped_configuration_runs_and_is_audited(
        self, installed: Installed, tmp_path: Path
    ) -> None:
        assert "run.toml" in installed.cutlock("example", cwd=tmp_path)
        config = installed.cutlock("example", "run.toml", cwd=tmp_path)
        assert config == (ROOT / "examples" / "run.toml").read_text()
        # In one process, and not to the end: what a real store adds is no matter of the wheel.
        config = f"max_steps = 2\n{config}\n[plane]\nkind = 'memory'\n"
        (tmp_path / "run.toml").write_text(config)
        installed.cutlock("run", "run.toml", "--out", "runs/first", cwd=tmp_path)
        installed.cutlock("resume", "runs/first", cwd=tmp_path)
        assert "nothing lost" in installed.cutlock("audit", "runs/first", cwd=tmp_path)


def _content(installed: Installed) -> list[Path]:
    package = next(installed.environment.glob("lib/python*/site-packages/cutlock"))
    return sorted(path for path in package.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.real
@pytest.mark.long
def test_the_demo_runs(installed: Installed, tmp_path: Path) -> None:
    said = installed.cutlock("demo", "--out", "demo", cwd=tmp_path)
    assert "nothing lost, nothing repeated" in said
