"""Writes the tables of docs/promises.md from the manifest: `python docs/site/bounds.py`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cutlock.tlc.manifest import Manifest, Mode, Model, load_manifest
from cutlock.tlc.outcome import Verdict

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "promises.md"

PROMISE_OF = {
    "TypeOK": "",
    "OneOwner": "P2",
    "DiskOneOwner": "P1, P2",
    "DiskCursor": "P1, P3",
    "DiskStamps": "P3",
    "OneAdmission": "P3",
    "DiskEpoch": "P1, P3",
    "DiskRows": "P1, P4",
    "SavedRows": "P1, P4",
    "LiveRows": "P4",
    "Inventory": "P4",
    "FreshAdvantages": "P5",
    "NoTwice": "P5",
    "NoLoss": "P5",
    "NoBatchDropped": "P5",
    "NoRefusal": "P6, P8",
    "Complete": "P8",
    "RestoresOneSave": "P6",
    "CutExcludes": "P1",
    "GateBound": "P3",
    "deadlock": "P7",
    "CutIsTaken": "P7",
    "DeferredEnds": "P7",
    "AdmittedEnds": "P7",
    "RestoreEnds": "P7",
    "RunEnds": "P7",
    "SlotEnters": "P7",
    "Exclusion": "P1",
    "Balance": "P7",
    "EachQueuedOnce": "P7",
    "NoIdlePlace": "P7",
}
"""Every predicate that a configuration names, and the promise that it is part of."""

SAYS = {
    "TypeOK": "every variable has a value of its type",
    "OneOwner": "each prompt that the loader has handed out has one owner, every other prompt none",
    "DiskOneOwner": "the same holds in the bundle that can be resolved",
    "DiskCursor": "no saved stamp is above the saved cursor, which is within the gate window",
    "DiskStamps": "no more prompts are saved with one stamp than a step takes",
    "OneAdmission": "a batch is admitted as a whole, by one admission",
    "DiskEpoch": "the saved loader position and the saved epoch belong together",
    "DiskRows": "every row of the saved index is in the saved store",
    "SavedRows": "the same holds when the bundle is published, whichever cut the next start uses",
    "LiveRows": "between slots, the rows of the store are the rows of the index",
    "Inventory": "the same holds when a save checks it",
    "FreshAdvantages": "a step trains only on advantages that it has computed itself",
    "NoTwice": "no prompt is trained twice",
    "NoLoss": "at the end every prompt is trained or dropped",
    "NoBatchDropped": "no whole batch is dropped (the story of the early cursor)",
    "NoRefusal": "a published bundle is never refused",
    "Complete": "a published bundle has all its files",
    "RestoresOneSave": "everything that is restored comes from one save",
    "CutExcludes": "no slot is held during the exclusive window",
    "GateBound": "the cursor is at most the version plus the window",
    "deadlock": "until the run has ended, some action is enabled",
    "CutIsTaken": "a requested cut is eventually taken",
    "DeferredEnds": "a clear that a save defers eventually happens",
    "AdmittedEnds": "every admitted group is eventually trained or dropped",
    "RestoreEnds": "a restart eventually reaches running pumps",
    "RunEnds": "the run eventually ends",
    "SlotEnters": "a waiting slot eventually enters",
    "Exclusion": "no slot is held during an exclusive cut",
    "Balance": "the barrier's counts match what is held",
    "EachQueuedOnce": "no task is in the queue twice",
    "NoIdlePlace": "no task waits while the barrier could admit it",
}


def constants(model: Model, manifest: Manifest) -> dict[str, str]:
    """What the configuration of a model sets its constants to."""
    text = (manifest.root / manifest.configs / model.config).read_text()
    return dict(re.findall(r"^ +(\w+) = (.+)$", text, re.M))


def count(of: str) -> int:
    """Elements of a set that is written out."""
    return of.count(",") + 1


def bounds(model: Model, manifest: Manifest) -> str:
    """The constants of a model, in words."""
    found = constants(model, manifest)
    if "Writers" in found:
        return f"{count(found['Writers'])} slots, {count(found['Savers'])} cuts"
    said = [found["Sampler"].strip('"'), f"{found['Batches']} x {count(found['Member'])}"]
    said.append(f"window {found['Window']}")
    if found["MaxFailures"] != "0":
        said.append(f"failures {found['MaxFailures']}")
    if found["SpareMark"] != "0":
        said.append("spares")
    if found["MaxCrashes"] != "0":
        when = "any step" if found["CrashAnywhere"] == "TRUE" else "after a bundle"
        said.append(f"crashes {found['MaxCrashes']}, {when}")
    if count(found["Units"]) > 1:
        said.append(f"{count(found['Units'])} units")
    if found["Capacity"] != "8":
        said.append(f"capacity {found['Capacity']}")
    return "; ".join(said)


def cut_of(model: Model, manifest: Manifest) -> str:
    """How the saves of a model cut."""
    first = {"TRUE": "narrow", "FALSE": "full"}.get(constants(model, manifest).get("Narrow", ""))
    if first is None:
        return "both"
    text = (manifest.root / manifest.configs / model.config).read_text()
    other = {"narrow": "full", "full": "narrow"}[first]
    return f"{first}, then {other}" if "NarrowCut <- CutChanged" in text else first


def models(manifest: Manifest) -> Iterator[str]:
    """One row for each model that has to hold."""
    yield "| model | how | cut | bounds | states | class | why these bounds |"
    yield "| --- | --- | --- | --- | ---: | --- | --- |"
    for model in manifest.models:
        if model.mode in {Mode.MUTANT, Mode.WITNESS}:
            continue
        cut = cut_of(model, manifest)
        states = f"{model.distinct:,}" if model.distinct else f"{model.walks:,} walks"
        yield (
            f"| `{model.name}` | {model.mode.value} | {cut} | {bounds(model, manifest)} | {states} "
            f"| {model.time.value} | {model.why} |"
        )


def predicates(manifest: Manifest) -> Iterator[str]:
    """One row for each promise of a configuration, with the mutants that it kills."""
    falls: dict[str, list[str]] = defaultdict(list)
    for model in manifest.models:
        if model.mode is Mode.MUTANT and model.expected is not Verdict.SUCCESS:
            falls[model.property or model.expected.value].append(model.name)
    yield "| predicate | promise | what it says | mutants that violate it |"
    yield "| --- | --- | --- | --- |"
    for name, promise in PROMISE_OF.items():
        mutants = ", ".join(f"`{mutant}`" for mutant in falls.pop(name, ()))
        yield f"| `{name}` | {promise} | {SAYS[name]} | {mutants} |"
    if falls:
        raise KeyError(f"{sorted(falls)} fall to a mutant and have no row; add them to PROMISE_OF")


def written(page: str) -> str:
    """The page with its tables as the manifest has them."""
    manifest = load_manifest(ROOT / "model_check" / "manifest.toml")
    for name, rows in {"models": models(manifest), "predicates": predicates(manifest)}.items():
        table = "\n".join(rows)
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.S)
        page = marks.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", page)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
