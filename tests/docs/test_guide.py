"""The first program of the guide is whole: it runs, is resumed, and loses nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cutlock
from tests.support.docs import ROOT, Page

ONE_SCREEN = 70
"""Lines of a program that a reader takes in at once."""


def test_the_first_program_fits_on_a_screen_and_trains_every_prompt_once(ram_path: Path) -> None:
    program = next(b for b in Page(ROOT / "docs" / "guide.md").blocks if "import cutlock" in b)
    assert len(program.splitlines()) <= ONE_SCREEN
    (ram_path / "program.py").write_text(program)
    for _ in range(2):  # the second start finds nothing left to train
        subprocess.run([sys.executable, "program.py"], cwd=ram_path, check=True)
    found = cutlock.audit_run(ram_path / "runs" / "first")
    assert (found.ok, found.trained_once, found.restarts) == (True, found.prompts, 1)
