"""The results of checking, as tables."""

from __future__ import annotations

from cutlock.report.terminal import Terminal, key_values, listing
from cutlock.tlc.check import Report, Result
from cutlock.tlc.doctor import Diagnosis
from cutlock.tlc.mutants import Mutant, MutantReport
from cutlock.tlc.outcome import Progress, Verdict

__all__ = ["searched", "show_diagnosis", "show_mutants", "show_report", "told_briefly"]


def searched(progress: Progress) -> str:
    """How far a search has come."""
    return f"{progress.distinct:,} states found, {progress.queue:,} left on queue"


def told_briefly(result: Result) -> str:
    """What a model has shown, in a few words."""
    states = "" if result.distinct is None else f", {result.distinct:,} states"
    return f"{_shown(result)}{states}, {result.seconds:.1f} s"


def _shown(result: Result) -> str:
    return "holds" if result.got is Verdict.SUCCESS else result.property or result.got.value


def show_report(terminal: Terminal, report: Report) -> None:
    """Every model with what it has shown, and what was not as expected."""
    rows = [
        (
            result.name,
            _shown(result),
            "-" if result.distinct is None else f"{result.distinct:,}",
            f"{result.seconds:.1f}",
            "yes" if result.ok else "NO",
        )
        for result in report.models
    ]
    columns = ("model", "holds, or falls", "states", "s", "as expected")
    terminal.show(listing("Models", columns, rows))
    failed = sum(not result.ok for result in report.models)
    terminal.show(
        f"{len(report.models)} models, {failed} not as expected. Java {report.java}; "
        f"TLC {report.jar}.",
    )


def show_mutants(terminal: Terminal, report: MutantReport) -> None:
    """Every mutant, the promise that had to fall and the one that did."""
    rows = [
        (
            mutant.name,
            _fallen(mutant),
            mutant.length or "-",
            f"{mutant.seconds:.1f}",
            "yes" if mutant.ok else "NO",
        )
        for mutant in report.mutants
    ]
    columns = ("mutant", "what falls", "steps", "s", "as expected")
    terminal.show(listing("Mutants", columns, rows))
    terminal.show(
        f"{report.killed} of {report.total} mutants killed by the named promise; "
        f"{report.harmless} of {len(report.mutants) - report.total} harmless ones survived.",
    )
    if report.unbroken:
        terminal.show(
            f"Broken by no mutant, so nobody has seen that they can fail: "
            f"{', '.join(report.unbroken)}; add a mutant for each to the manifest."
        )


def _fallen(mutant: Mutant) -> str:
    wanted = mutant.property or "nothing"
    found = "nothing" if mutant.got == Verdict.SUCCESS else mutant.got
    return found if mutant.ok or found == wanted else f"{found}, not {wanted}"


def show_diagnosis(terminal: Terminal, found: Diagnosis) -> None:
    """Where Java was looked for, and what is used."""
    places = [
        (place.source, f"{place.version} at {place.path}" if place.path else place.problem)
        for place in found.tried
    ]
    terminal.show(key_values("Java, in the order of search", places))
    values: list[tuple[str, object]] = [
        ("Java", f"{found.java_version} at {found.java}" if found.java else "missing"),
        ("jar", f"{found.jar} (from {found.jar_source})" if found.jar else "missing"),
    ]
    if found.jar:
        known = "the pinned one" if found.jar_pinned else "not the pinned one"
        values += [("build", found.jar_build), ("sha256", f"{found.jar_sha256}, {known}")]
    terminal.show(key_values("Doctor", values))
