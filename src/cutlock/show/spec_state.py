"""A state of the specification as a moment in words.

Source: `spec/State.tla`: its vocabulary and the comments of its variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cutlock.show.moments import HELD, NOTHING, Moment, Owner, listed
from cutlock.tlc.values import ModelValue, Value

__all__ = ["COUNTERS", "disk_owners", "live_owners", "moment", "name_of", "names_of", "prompts_of"]

State = Mapping[str, Any]

COUNTERS = {
    "version": "trainer version",
    "cursor": "dispatch cursor",
    "loader": "loader, batches",
    "read_cursor": "save: cursor",
    "read_loader": "save: batches",
    "read_index": "save: index",
    "read_ledger": "save: ledger",
    "disk_version": "disk: version",
    "disk_cursor": "disk: cursor",
    "disk_loader": "disk: batches",
}
"""The rows of numbers, by what they hold."""

_TASKS = {
    "none": "",
    "gen": "generating",
    "committing": "commit begun, rows are being put",
    "put": "rows put, entry not ready yet",
    "failed": "failed",
    "late": "committed, its ledger record is still there",
}
_TRAIN_PUMP = {
    "idle": "between two steps",
    "advantages": "groups claimed, advantages due",
    "train": "optimizer step due",
    "clear": "trained, rows to be cleared",
    "raise": "version to be raised",
    "sync": "weights to be synced",
    "saving": "stands still for the save",
}
_SAVE = {
    "none": "",
    "requested": "the cut is asked for",
    **dict.fromkeys(("cursor", "loader", "pool", "index", "ledger"), "window open, reading"),
    "copy": "cut taken, policy to be copied",
    "plane": "key map and rows to be written",
    "close": "window to be closed",
    "files": "files are written",
    "published": "published",
}
_START = {
    "down": "no process",
    "begun": "begun",
    "verified": "bundle verified",
    "loaded": "rows loaded",
    "connected": "plane connected",
    "indexed": "index restored",
    "pooled": "spare pool restored",
    "owned": "ledger restored",
    "restored": "cursor and loader restored",
    "started": "pumps started",
    "running": "running",
    "refused": "the restore has refused",
}
_ROOM = 2
_NO_PROCESS = {"down", "refused"}


def plain(value: Value) -> str:
    """A model value, a string or a number as text."""
    return value.name if isinstance(value, ModelValue) else str(value)


def name_of(prompt: Any) -> str:
    """`1a` for member `a` of batch 1, `1.2` for member 2."""
    batch, member = prompt
    letter = plain(member)
    return f"{batch}{letter}" if letter.isalpha() and len(letter) == 1 else f"{batch}.{letter}"


def names_of(prompts: Iterable[Any]) -> list[str]:
    """Names in the order of the loader."""
    return [name_of(prompt) for prompt in _in_order(prompts)]


def prompts_of(state: State) -> list[Any]:
    """All prompts, in the order of the loader."""
    return _in_order(state["led"])


def _in_order(prompts: Iterable[Any]) -> list[Any]:
    return sorted(prompts, key=lambda prompt: (prompt[0], plain(prompt[1])))


def live_owners(state: State, prompt: Any) -> list[str]:
    """Everybody who owns a prompt now; one is the rule, nobody before it is handed out."""
    open_claim = state["tp"] in {"advantages", "train"}
    return _owners(state, prompt, state["claimed"] if open_claim else frozenset())


def disk_owners(state: State, prompt: Any) -> list[str]:
    """The same for the published bundle."""
    return _owners(state["disk"], prompt, frozenset())


def _owners(owned: State, prompt: Any, claimed: frozenset[Any]) -> list[str]:
    phase = owned["led"][prompt]
    times = owned["trained"][prompt]
    found = [
        ("spare pool", prompt in owned["pool"]),
        (phase.lower(), phase != "none"),
        ("buffer", prompt in owned["index"]),
        ("in training", prompt in claimed),
        ("trained", times > 0),
        ("trained again", times > 1),
        ("dropped", prompt in owned["dropped"]),
    ]
    return [name for name, holds in found if holds]


def moment(state: State) -> Moment:
    """The state in words."""
    prompts = prompts_of(state)
    running = state["up"] == "running"
    published = bool(state["disk"]["files"])
    foreign = _in_order({prompt for prompt, _ in state["rows"]} - set(prompts))
    nothing: dict[str, Owner] = {}
    return Moment(
        owners={name_of(p): _live(state, p, running=running) for p in prompts}
        | {name_of(p): Owner("foreign") for p in foreign},
        rows={name_of(p): _rows(state, p) for p in (*prompts, *foreign)},
        disk={name_of(p): _on_disk(state, p) for p in prompts} if published else nothing,
        counters=_counters(state, published=published),
        details=_details(state, prompts),
        bands=_bands(state),
    )


def _live(state: State, prompt: Any, *, running: bool) -> Owner:
    owners = live_owners(state, prompt)
    if not owners and not running:
        # What has not come back yet is not lost.
        return NOTHING
    return _one(owners, state["idx"][prompt], served=prompt[0] <= state["pos"])


def _on_disk(state: State, prompt: Any) -> Owner:
    disk = state["disk"]
    served = prompt[0] <= disk["pos"]
    owners = disk_owners(state, prompt)
    if owners and not served:
        return Owner("two owners", f"{owners[0]}, and still to be read by the loader")
    return _one(owners, disk["idx"][prompt], served=served)


def _one(owners: list[str], stamp: int, *, served: bool) -> Owner:
    if len(owners) > 1:
        return Owner("two owners", " + ".join(owners))
    if not owners:
        return Owner("lost") if served else Owner("unread")
    stamped = owners[0] in {"admitted", "buffer"} and stamp >= 0
    return Owner(owners[0], f"stamp {stamp}" if stamped else "")


def _rows(state: State, prompt: Any) -> str:
    units = {unit for key, unit in state["rows"] if key == prompt}
    everywhere = {unit for _, unit in state["rows"]} | _units(state)
    return "" if not units else "all" if units >= everywhere else "part"


def _units(state: State) -> set[Any]:
    files = set(state["disk"]["files"]) | set(state["cap"]["files"])
    return files - {"policy", "sidecars", "manifest"}


def _counters(state: State, *, published: bool) -> dict[str, str]:
    cap, disk, alive = state["cap"], state["disk"], state["up"] != "down"
    found = {
        "version": state["version"] if alive else "",
        "cursor": state["cursor"] if alive else "",
        "loader": state["pos"] if alive else "",
        "read_cursor": cap["cursor"]["v"] if cap["cursor"]["set"] else "",
        "read_loader": cap["loader"]["v"]["pos"] if cap["loader"]["set"] else "",
        "read_index": _few(_held(cap["index"])),
        "read_ledger": _few(_held_ledger(cap["ledger"])),
        "disk_version": disk["version"] if published else "",
        "disk_cursor": disk["cursor"] if published else "",
        "disk_loader": disk["pos"] if published else "",
    }
    return {COUNTERS[key]: str(value) for key, value in found.items()}


def _details(state: State, prompts: list[Any]) -> dict[str, str]:
    cap, disk = state["cap"], state["disk"]
    short = {step: count for step, count in _items(state["short"]) if count}
    found = {
        "run": _START[state["up"]],
        "epoch": str(state["epoch"]),
        "epoch counter": "to be raised, in the loader's slot" if state["raising"] else "",
        "gate": "found open" if state["gate"] else "",
        "door of the barrier": state["door"],
        "train pump": _TRAIN_PUMP[state["tp"]],
        "save": _SAVE[state["sv"]],
        f"{HELD}spare pool": _held(cap["pool"]),
        f"{HELD}files": _files(cap["files"]),
        "files of the bundle": _files(disk["files"]),
        "clears that wait": listed(names_of(state["deferred"])),
        "advantages computed in this step": listed(names_of(state["computed"])),
        "rows that carry advantages": listed(names_of(state["derived"])),
        "shortfall": ", ".join(f"step {step} by {count}" for step, count in short.items()),
    }
    for prompt in prompts:
        found[f"rollout of {name_of(prompt)}"] = _TASKS.get(state["task"][prompt], "")
    return {name: "" if value == "none" else value for name, value in found.items()}


def _files(names: Iterable[Any]) -> str:
    units = sorted(plain(name) for name in names if isinstance(name, ModelValue))
    others = [name for name in ("policy", "sidecars", "manifest") if name in names]
    return listed([*(f"rows of {unit}" for unit in units), *others])


def _items(function: Any) -> list[tuple[Any, Any]]:
    """Arguments and values; a function on 1..n is a tuple."""
    pairs = function.items() if isinstance(function, Mapping) else enumerate(function, 1)
    return sorted(pairs)


def _held(captured: Any) -> str:
    return (
        (listed(names_of(captured["v"])) if captured["v"] else "empty") if captured["set"] else ""
    )


def _few(names: str) -> str:
    """Names for a row of the picture, which has room for two."""
    count = names.count(",") + 1
    return names if count <= _ROOM else f"{names.split(',')[0]} +{count - 1}"


def _held_ledger(captured: Any) -> str:
    if not captured["set"]:
        return ""
    owed = [prompt for prompt, phase in captured["v"]["led"].items() if phase != "none"]
    return listed(names_of(owed)) if owed else "empty"


def _bands(state: State) -> dict[str, str]:
    if state["up"] != "running":
        label = "no process" if state["up"] in _NO_PROCESS else "starting"
        return {"down": label}
    found = {}
    if state["sv"] != "none":
        found["save"] = "save"
    if state["door"] == "shut":
        found["window"] = "window"
    if state["door"] == "closing":
        found["drain"] = "door closing"
    return found
