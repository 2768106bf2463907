"""Which predicates no mutant breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.errors import ConfigError
from cutlock.tlc.manifest import load_manifest
from cutlock.tlc.unbroken import unbroken
from tests.support.lock_example import LOCK_FOLDER

ROW = """
[[models]]
name = "{name}"
module = "{module}"
config = "{name}.cfg"
mode = "{mode}"
time = "quick"
{more}
why = "for a test"
"""
HOLDS = "distinct = 1"


def falls(predicate: str) -> str:
    return f'expected = "invariant"\nproperty = "{predicate}"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two specifications, each with a `TypeOK`, and with a module of mutants that extends it."""
    for name in ("Tank", "Pump"):
        (tmp_path / f"{name}.tla").write_text(
            f"---- MODULE {name} ----\nEXTENDS Naturals, FiniteSets\nTypeOK == TRUE\n"
            "Level == TRUE\n====\n"
        )
        (tmp_path / f"{name}Mutants.tla").write_text(
            f"---- MODULE {name}Mutants ----\nEXTENDS TLC, {name}\nTypeOKToo == TRUE\n====\n"
        )
    return tmp_path


def found(folder: Path, *rows: tuple[str, str, str, str, str]) -> tuple[str, ...]:
    text = 'modules = ["."]\nconfigs = "."\n'
    for name, module, mode, more, checks in rows:
        text += ROW.format(name=name, module=module, mode=mode, more=more)
        (folder / f"{name}.cfg").write_text(f"SPECIFICATION Spec\nINVARIANTS {checks}\n")
    (folder / "manifest.toml").write_text(text)
    return unbroken(load_manifest(folder / "manifest.toml"))


def test_what_no_mutant_names_is_told_once_with_its_module(folder: Path) -> None:
    rows = (
        ("small", "Tank", "safety", HOLDS, "TypeOK Level"),
        ("large", "Tank", "safety", HOLDS, "TypeOK Level"),
        ("leak", "TankMutants", "mutant", falls("Level"), "TypeOK Level"),
    )
    assert found(folder, *rows) == ("Tank!TypeOK",)


def test_a_mutant_of_another_specification_stands_for_its_own(folder: Path) -> None:
    rows = (
        ("tank", "Tank", "safety", HOLDS, "TypeOK"),
        ("pump", "PumpMutants", "safety", HOLDS, "TypeOK"),
        ("leak", "TankMutants", "mutant", falls("TypeOK"), "TypeOK"),
    )
    assert found(folder, *rows) == ("Pump!TypeOK",)


def test_a_mutant_that_does_no_harm_and_a_witness_stand_for_nothing(folder: Path) -> None:
    rows = (
        ("tank", "Tank", "safety", HOLDS, "Level"),
        ("harmless", "TankMutants", "mutant", "", "Level"),
        ("witness", "Tank", "witness", falls("Level"), "Level"),
    )
    assert found(folder, *rows) == ("Tank!Level",)


def test_a_predicate_that_is_defined_nowhere_is_of_the_module_that_is_run(folder: Path) -> None:
    assert found(folder, ("tank", "TankMutants", "safety", HOLDS, "TypeO")) == (
        "TankMutants!TypeO",
    )


def test_a_configuration_that_is_gone_is_an_error(folder: Path) -> None:
    found(folder, ("tank", "Tank", "safety", HOLDS, "Level"))
    manifest = load_manifest(folder / "manifest.toml")
    (folder / "tank.cfg").unlink()
    with pytest.raises(ConfigError, match=r"tank\.cfg"):
        unbroken(manifest)


def test_the_example_of_a_lock_has_a_mutant_for_each() -> None:
    assert unbroken(load_manifest(LOCK_FOLDER / "spec" / "manifest.toml")) == ()
