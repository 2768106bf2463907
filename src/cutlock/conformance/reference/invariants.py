"""The promises, as functions of a state of the reference.

Source: `spec/Invariants.tla`; names are those that they have there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cutlock.conformance.reference.state import Prompt, Prompts
from cutlock.conformance.reference.terms import START_DUE, Terms

__all__ = ["INVARIANTS", "broken"]

Invariant = Callable[[Terms], bool]


def type_ok(t: Terms) -> bool:
    s, prompts = t.state, frozenset(t.prompts)
    most = t.bounds.batches * t.bounds.size + t.bounds.max_failures
    phases = {"none", "RESERVED", "ADMITTED"}
    tasks = {"none", "gen", "committing", "put", "failed"}
    return (
        0 <= s.pos <= t.bounds.batches
        and 0 <= s.epoch <= t.epoch_of(t.bounds.batches)
        and s.pool | s.index | s.claimed <= prompts
        and s.rows <= t.rows_of(prompts)
        and phases.issuperset(s.led.values())
        and tasks.issuperset(s.task.values())
        and all(-1 <= n <= most for n in (*s.idx.values(), *s.wt.values()))
        and START_DUE <= s.saved <= most + 1
        and frozenset(s.order) == s.index
        and s.door in {"open", "closing", "shut"}
    )


def _owners(
    t: Terms,
    prompt: Prompt,
    pool: Prompts,
    led: Mapping[Prompt, str],
    index: Prompts,
    claim: Prompts,
    trained: Mapping[Prompt, int],
    dropped: Prompts,
) -> int:
    sets = (pool, index, claim, dropped)
    return sum(prompt in s for s in sets) + (led[prompt] != "none") + (trained[prompt] > 0)


def one_owner(t: Terms) -> bool:
    s = t.state
    claim = s.claimed if s.tp in {"advantages", "train"} else frozenset()
    return s.up != "running" or all(
        _owners(t, p, s.pool, s.led, s.index, claim, s.trained, s.dropped) == (p[0] <= s.pos)
        for p in t.prompts
    )


def disk_one_owner(t: Terms) -> bool:
    d = t.state.disk
    return all(
        _owners(t, p, d.pool, d.led, d.index, frozenset(), d.trained, d.dropped) == (p[0] <= d.pos)
        for p in t.prompts
    )


def _dispatched_on_disk(t: Terms) -> Prompts:
    d = t.state.disk
    return frozenset(p for p in t.prompts if p in d.index or d.led[p] == "ADMITTED")


def disk_cursor(t: Terms) -> bool:
    d = t.state.disk
    return (
        all(d.idx[p] <= d.cursor for p in _dispatched_on_disk(t))
        and (not t.gated or d.cursor <= d.version + t.bounds.window)
        and all(d.idx[p] == -1 for p in t.prompts if d.led[p] == "RESERVED")
    )


def disk_stamps(t: Terms) -> bool:
    stamps = [t.state.disk.idx[p] for p in _dispatched_on_disk(t)]
    return not t.stamping or all(stamps.count(stamp) <= t.bounds.size for stamp in stamps)


def one_admission(t: Terms) -> bool:
    s = t.state
    if t.bounds.spare_mark:
        return True
    owned = s.index | t.owned
    return all(s.idx[p] == s.idx[q] for p in s.index | t.admitted for q in owned if p[0] == q[0])


def disk_epoch(t: Terms) -> bool:
    return t.state.disk.epoch == t.epoch_of(t.state.disk.pos)


def disk_rows(t: Terms) -> bool:
    d = t.state.disk
    owned = t.rows_of(d.index)
    whole = owned <= d.rows if t.bounds.narrow else owned == d.rows
    return d.index <= d.keys and whole


def saved_rows(t: Terms) -> bool:
    return t.state.sv != "published" or disk_rows(t)


def live_rows(t: Terms) -> bool:
    s = t.state
    if s.up != "running" or t.holders or s.tp == "clear":
        return True
    return s.rows == t.rows_of(s.index | s.claimed | s.deferred)


def inventory(t: Terms) -> bool:
    s = t.state
    return not (s.up == "running" and s.sv == "plane") or t.inventory_holds


def fresh_advantages(t: Terms) -> bool:
    return t.state.tp != "train" or t.state.computed == t.state.claimed


def no_twice(t: Terms) -> bool:
    return all(count < 2 for count in t.state.trained.values())


def no_loss(t: Terms) -> bool:
    s = t.state
    if not (s.up == "running" and t.finished):
        return True
    return all(s.trained[p] == 1 or p in s.dropped for p in t.prompts)


def no_refusal(t: Terms) -> bool:
    return t.state.up != "refused"


def complete(t: Terms) -> bool:
    return not t.published or t.state.disk.files == t.all_files


def restores_one_save(t: Terms) -> bool:
    return t.state.up not in {"verified", "loaded", "connected", "restored"} or t.bound


def cut_excludes(t: Terms) -> bool:
    return t.state.door != "shut" or not (t.holders or t.state.raising)


def gate_bound(t: Terms) -> bool:
    s = t.state
    return not (t.gated and s.up == "running") or s.cursor <= s.version + t.bounds.window


INVARIANTS: Mapping[str, Invariant] = {
    "TypeOK": type_ok,
    "OneOwner": one_owner,
    "DiskOneOwner": disk_one_owner,
    "DiskCursor": disk_cursor,
    "DiskStamps": disk_stamps,
    "OneAdmission": one_admission,
    "DiskEpoch": disk_epoch,
    "DiskRows": disk_rows,
    "SavedRows": saved_rows,
    "LiveRows": live_rows,
    "Inventory": inventory,
    "FreshAdvantages": fresh_advantages,
    "NoTwice": no_twice,
    "NoLoss": no_loss,
    "NoRefusal": no_refusal,
    "Complete": complete,
    "RestoresOneSave": restores_one_save,
    "CutExcludes": cut_excludes,
    "GateBound": gate_bound,
}
"""By the name that the promise has in the spec."""


def broken(terms: Terms) -> list[str]:
    """The promises that do not hold in a state; none is the rule."""
    return [name for name, holds in INVARIANTS.items() if not holds(terms)]
