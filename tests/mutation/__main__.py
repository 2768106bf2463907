"""The mutants of the code: `make mutation`, or `python -m tests.mutation`.

mutmut writes every module that pyproject.toml names anew, into `mutants/`, with the mutants of
each function beside it. `forked` tries them there, with the tests that pyproject.toml names. A
mutant that no test notices has to be in `survivors.toml`, with the reason why that is right.

\b
    python -m tests.mutation                      all of them, from scratch
    python -m tests.mutation --again              those that lived or whose function has changed
    python -m tests.mutation 'cutlock.ledger.*'   some of them, once more
    python -m tests.mutation --bond 200           a sample of the killed ones, with the bond's
                                                  suites alone
    python -m tests.mutation --page               what is known, into docs/mutation.md
    mutmut show NAME                              the change that a mutant makes

Exit codes: 0 as it should be; 1 a survivor without a reason, a reason without a survivor, or a
score below the least one.
"""

from __future__ import annotations

import fnmatch
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import libcst as cst
from mutmut.__main__ import CatchOutput, copy_also_copy_files, copy_src_dir, create_mutants
from mutmut.configuration import config
from mutmut.mutation import mutators
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import (
    mangled_name_from_mutant_name,
    orig_function_and_class_names_from_key,
)
from rich.console import Console
from rich.table import Table

from tests.mutation.forked import RESULTS, WANTED
from tests.mutation.page import PAGE, filled, rows
from tests.mutation.results import COLUMNS, Outcomes, module_of, read, score, table, write
from tests.mutation.survivors import Change, accepted, changes, markdown

PLACE = Path("mutants")
LEAST = 95.0
"""Score in per cent below which a whole run fails."""

BOND = (
    "tests/replay/test_counterexamples.py",
    "tests/replay/test_observation.py",
    "tests/replay/test_stepper.py",
    "tests/stateful/test_machine.py",
    "tests/stateful/test_pair.py",
    "tests/stateful/test_regressions.py",
)
"""What holds code and specification together, without the walks over whole graphs."""

ALL, OF_BOND = "results.json", "bond.json"

SENTENCE = re.compile(r"\w[,;:]? \w")


@dataclass(frozen=True)
class Mutant:
    path: Path
    """The module."""
    digest: str
    """Of the function."""


Mutants = Mapping[str, Mutant]


def leave_sentences_alone() -> None:
    """Take from mutmut's operators the change of a string of two words or more: a message."""
    operators = cast(list[Any], mutators.mutation_operators)
    change = mutators.operator_string

    def unless_sentence(node: cst.BaseString) -> Iterable[cst.BaseString]:
        return () if SENTENCE.search(cst.Module([]).code_for_node(node)) else change(node)

    operators[operators.index((cst.BaseString, change))] = (cst.BaseString, unless_sentence)


def generate() -> Mutants:
    """Write the mutants; what is up to date already stays."""
    PLACE.mkdir(exist_ok=True)
    with CatchOutput():
        copy_src_dir()
        copy_also_copy_files()
        create_mutants(1)
    found = {}
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for name in data.exit_code_by_key:
            function = mangled_name_from_mutant_name(name).rpartition(".")[2]
            found[name] = Mutant(path, data.hash_by_function_name[function])
    return found


def try_out(mutants: Mutants, tests: Iterable[str], results: str) -> Outcomes:
    """Try them with these tests; what comes of them is added to the file `results`."""
    (PLACE / WANTED).write_text(json.dumps({name: m.digest for name, m in mutants.items()}))
    command = [
        *(sys.executable, "-m", "pytest", "--rootdir=.", "--quiet", "--capture=sys"),
        *("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "tests.mutation.forked"),
        *config().pytest_add_cli_args,
        *tests,
    ]
    here = {"PYTHONPATH": "src:.", "OMP_NUM_THREADS": "1", RESULTS: results}
    subprocess.run(command, cwd=PLACE, env={**os.environ, **here}, check=True)
    return read(PLACE / results)


def change_of(name: str, mutant: Mutant) -> Change:
    """What the mutant changes, in the words of `survivors.toml`."""
    function, of = orig_function_and_class_names_from_key(name)
    lines = get_diff_for_mutant(name, path=mutant.path).splitlines()[2:]
    was, now = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Change(".".join(filter(None, (module_of(name), of, function))), was, now)


def all_explained(outcomes: Outcomes, mutants: Mutants) -> bool:
    """Whether survivors and reasons are of the same mutants; prints those that are not."""
    found = {change_of(name, mutants[name]): name for name, o in outcomes.items() if o.alive}
    known = set(changes(accepted()))
    for what, some in ("no reason", found.keys() - known), ("no survivor", known - found.keys()):
        for change in sorted(some):
            print(f"# {what}: {found.get(change, '')}")
            print(f'[[reason.mutants]]\nfunction = "{change.function}"')
            print(f"was = '''{change.was}'''\nnow = '''{change.now}'''\n")
    return found.keys() == known


def show(outcomes: Outcomes) -> None:
    shown = Table(*COLUMNS)
    for row in table(outcomes):
        shown.add_row(*row)
    Console().print(shown)


def write_page() -> None:
    """Put the tables of the last runs, and the list of survivors, into the page."""
    text = PAGE.read_text()
    for block, file in ("results", ALL), ("bond", OF_BOND):
        if (PLACE / file).exists():
            text = filled(text, block, rows(table(read(PLACE / file))))
    PAGE.write_text(filled(text, "survivors", markdown(accepted())))


@click.command(help=__doc__)
@click.argument("patterns", nargs=-1)
@click.option("--again", is_flag=True, help="Keep what is settled.")
@click.option("--bond", type=int, metavar="COUNT", help="Try that many of the killed mutants.")
@click.option("--page", is_flag=True, help="Only write what is known into docs/mutation.md.")
def main(patterns: tuple[str, ...], again: bool, bond: int | None, page: bool) -> None:
    if page:
        write_page()
        return
    if PLACE.exists() and not (patterns or again or bond):
        shutil.rmtree(PLACE)
    leave_sentences_alone()
    mutants = generate()
    path = PLACE / ALL
    known = {n: o for n, o in read(path).items() if n in mutants and o.digest == mutants[n].digest}
    write(known, path)
    if bond:
        killed = sorted(name for name, outcome in known.items() if not outcome.alive)
        sample = sorted(random.Random(0).sample(killed, min(bond, len(killed))))
        (PLACE / OF_BOND).unlink(missing_ok=True)
        show(try_out({name: mutants[name] for name in sample}, BOND, OF_BOND))
        return

    def wanted(name: str) -> bool:
        if again and name in known and not known[name].alive:
            return False
        return not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)

    some = {name: mutant for name, mutant in mutants.items() if wanted(name)}
    outcomes = try_out(some, config().pytest_add_cli_args_test_selection, ALL)
    show(outcomes)
    if not all_explained(outcomes, mutants) or score(outcomes) < LEAST:
        sys.exit(1)


if __name__ == "__main__":
    main()
