"""The actions of the reference, one function each, in the order of the spec.

A function yields, for each choice that the specification leaves, the arguments of the action
and the state after it; nothing where the action is not enabled.

Source: actions of `spec/Cutlock.tla`; arguments as in `spec/LabelledCutlock.tla`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from cutlock.alphabet import Action
from cutlock.conformance.reference.state import (
    Bundle,
    Capture,
    LedgerRead,
    Prompt,
    Prompts,
    State,
    altered,
    initial_state,
)
from cutlock.conformance.reference.terms import NO_BUNDLE, START_DUE, Terms
from cutlock.tlc.values import Value

__all__ = ["ACTIONS", "Act", "Successors"]

Successors: TypeAlias = Iterator[tuple[dict[str, Value], State]]
Act: TypeAlias = Callable[[Terms], Successors]


# Rollout pump: from the loader to the ledger.


def _advance(t: Terms, **changes: Any) -> State:
    pos = t.state.pos + 1
    return replace(t.state, pos=pos, raising=pos % t.bounds.per_epoch == 0, **changes)


def _may_advance(t: Terms) -> bool:
    return t.state.up == "running" and t.pump_free and not t.exhausted and t.door_open


def reserve_batch(t: Terms) -> Successors:
    s = t.state
    if not t.pool_low and _may_advance(t):
        served = t.members(s.pos + 1)
        yield {"groups": served}, _advance(t, led=altered(s.led, served, "RESERVED"))


def fill_spare_pool(t: Terms) -> Successors:
    s = t.state
    if t.pool_low and _may_advance(t):
        served = t.members(s.pos + 1)
        yield {"groups": served}, _advance(t, pool=s.pool | served)


def raise_epoch(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.raising:
        yield {}, replace(s, epoch=s.epoch + 1, raising=False)


def drain_spare_pool(t: Terms) -> Successors:
    s = t.state
    drained = t.exhausted and not t.owned and s.pool
    if s.up == "running" and t.pump_free and drained and t.slot_open:
        taken = t.spares(t.bounds.size)
        yield (
            {"groups": taken},
            replace(s, led=altered(s.led, taken, "RESERVED"), pool=s.pool - taken),
        )


def open_gate(t: Terms) -> Successors:
    s = t.state
    waits = t.reserved and t.wanted < t.bounds.capacity and not s.gate and not s.raising
    if s.up == "running" and waits and t.gate_open:
        yield {}, replace(s, gate=True)


def commit_admission(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.gate and t.slot_open:
        batch, cursor, short = t.reserved, s.cursor + 1, s.short
        if t.credits_ and len(batch) < t.bounds.size:
            short = _credited(t, cursor, t.bounds.size - len(batch))
        yield (
            {"groups": batch},
            replace(
                s,
                led=altered(s.led, batch, "ADMITTED"),
                idx=altered(s.idx, batch, cursor),
                wt=altered(s.wt, batch, t.weight),
                short=short,
                cursor=cursor,
                gate=False,
            ),
        )


def _credited(t: Terms, index: int, count: int) -> Mapping[int, int]:
    """Groups that a step goes without; more than it has goes to later steps."""
    short, step = dict(t.state.short), max(index, t.next_selection)
    while count:
        part = min(count, t.bounds.size - short[step])
        short[step] += part
        count -= part
        step += 1
    return short


# Rollout pump: from the ledger to the buffer.


def _to_task(s: State, group: Prompt, task: str, **changes: Any) -> State:
    return replace(s, task=altered(s.task, [group], task), **changes)


def _with_task(t: Terms, task: str) -> Iterator[Prompt]:
    if t.state.up == "running":
        yield from (p for p in t.prompts if t.state.task[p] == task)


def launch_group(t: Terms) -> Successors:
    s = t.state
    if s.up != "running":
        return
    for p in t.prompts:
        if p in t.unlaunched:
            may = t.held + t.before(p) < t.bounds.capacity
        else:
            may = p in t.admitted and s.task[p] == "failed"
        if may:
            yield {"group": p}, _to_task(s, p, "gen")


def begin_commit(t: Terms) -> Successors:
    for p in _with_task(t, "gen"):
        if t.slot_open:
            yield {"group": p}, _to_task(t.state, p, "committing")


def store_row(t: Terms) -> Successors:
    s = t.state
    if t.bounds.narrow:
        for p in _with_task(t, "committing"):
            for row in t.rows_of([p]) - s.rows:
                yield {"group": p, "unit": row[1]}, replace(s, rows=s.rows | {row})


def put_rows(t: Terms) -> Successors:
    s = t.state
    for p in _with_task(t, "committing"):
        # Under the narrow cut a put is no step: its units have stored before it returns.
        if not t.bounds.narrow or t.rows_of([p]) <= s.rows:
            yield {"group": p}, _to_task(s, p, "put", rows=s.rows | t.rows_of([p]))


def commit_group(t: Terms) -> Successors:
    s = t.state
    for p in _with_task(t, "put"):
        yield (
            {"group": p},
            _to_task(
                s,
                p,
                "none",
                index=s.index | {p},
                order=(*s.order, p),
                led=altered(s.led, [p], "none"),
            ),
        )


def rollback_group(t: Terms) -> Successors:
    s = t.state
    for task in ("committing", "put"):
        for p in _with_task(t, task):
            if s.failures < t.bounds.max_failures:
                rows = s.rows - t.rows_of([p])
                yield {"group": p}, _to_task(s, p, "failed", rows=rows, failures=s.failures + 1)


def fail_group(t: Terms) -> Successors:
    s = t.state
    for p in _with_task(t, "gen"):
        if s.failures < t.bounds.max_failures:
            yield {"group": p}, _to_task(s, p, "failed", failures=s.failures + 1)


def _gone(t: Terms, group: Prompt) -> dict[str, Any]:
    """What changes when nobody owns a group any more that had been admitted."""
    s = t.state
    return {
        "led": altered(s.led, [group], "none"),
        "idx": altered(s.idx, [group], -1),
        "wt": altered(s.wt, [group], -1),
        "dropped": s.dropped | {group},
    }


def drop_group(t: Terms) -> Successors:
    s = t.state
    for p in _with_task(t, "failed"):
        if not s.pool and t.slot_open:
            short = _credited(t, s.idx[p], 1) if t.credits_ else s.short
            yield {"group": p}, _to_task(s, p, "none", short=short, **_gone(t, p))


def substitute_group(t: Terms) -> Successors:
    s = t.state
    for p in _with_task(t, "failed"):
        for q in t.spares(1):
            if t.slot_open:
                weight = s.version if t.bounds.sampler == "windowed" else s.wt[p]
                gone = _gone(t, p)
                gone["led"] = altered(gone["led"], [q], "ADMITTED")
                gone["idx"] = altered(gone["idx"], [q], s.idx[p])
                gone["wt"] = altered(gone["wt"], [q], weight)
                arguments: dict[str, Value] = {"group": p, "substitute": q}
                yield arguments, _to_task(s, p, "none", pool=s.pool - {q}, **gone)


def abort_stale(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.tp == "sync" and not t.gated and t.slot_open:
        for p in t.first_stale:
            yield {"group": p}, _to_task(s, p, "none", **_gone(t, p))


# Train pump.


def _clear(t: Terms, groups: Prompts) -> dict[str, Any]:
    """What changes when rows go; those of pinned groups do later."""
    s = t.state
    later = groups & t.pinned
    return {
        "rows": s.rows - t.rows_of(groups - later),
        "derived": s.derived - (groups - later),
        "deferred": s.deferred | later,
    }


def _leave(t: Terms, groups: Prompts) -> dict[str, Any]:
    """What changes when groups leave the index: the ledger forgets them as well."""
    s = t.state
    return {
        "index": s.index - groups,
        "order": tuple(p for p in s.order if p not in groups),
        "led": altered(s.led, groups, "none"),
        "idx": altered(s.idx, groups, -1),
        "wt": altered(s.wt, groups, -1),
    }


def evict_groups(t: Terms) -> Successors:
    s = t.state
    due = t.evictable and s.saved != START_DUE
    if s.up == "running" and s.tp == "idle" and due and t.slot_open:
        gone = t.evictable
        changes = _leave(t, gone) | _clear(t, gone)
        yield {"groups": gone}, replace(s, dropped=s.dropped | gone, **changes)


def select_groups(t: Terms) -> Successors:
    s = t.state
    due = not t.evictable and s.saved != START_DUE
    if s.up == "running" and s.tp == "idle" and due and t.slot_open:
        for groups in t.selections():
            kept = {step: 0 if step < s.version else n for step, n in s.short.items()}
            tp = "advantages" if groups else "raise"
            yield (
                {"groups": groups},
                replace(s, claimed=groups, short=kept, tp=tp, **_leave(t, groups)),
            )


def write_advantages(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.tp == "advantages":
        yield {}, replace(s, computed=s.claimed, derived=s.derived | s.claimed, tp="train")


def train_step(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.tp == "train":
        trained = {p: min(2, n + 1) if p in s.claimed else n for p, n in s.trained.items()}
        yield {"groups": s.claimed}, replace(s, trained=trained, tp="clear")


def clear_rows(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.tp == "clear" and t.slot_open:
        nobody: Prompts = frozenset()
        changes = _clear(t, s.claimed)
        yield (
            {"groups": s.claimed},
            replace(s, claimed=nobody, computed=nobody, tp="raise", **changes),
        )


def raise_version(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.tp == "raise":
        yield {}, replace(s, version=s.version + 1, tp="sync")


def sync_weights(t: Terms) -> Successors:
    s = t.state
    later = s.up == "running" and s.tp == "sync" and (t.gated or not t.stale)
    if s.up == "started" or later:
        yield {}, replace(s, up="running", tp="idle")


# The save.


def request_cut(t: Terms) -> Successors:
    s = t.state
    due = s.sv == "none" and not s.deferred and s.saved < s.version
    if s.up == "running" and s.tp in {"idle", "saving"} and due:
        yield {}, replace(s, sv="requested", tp="saving", door="closing")


def open_cut(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and not t.bounds.narrow and s.sv == "requested" and t.may_open:
        yield {}, replace(s, sv="cursor", door="shut")


def _read(t: Terms, what: str, then: str, **read: Any) -> Successors:
    s = t.state
    if s.up == "running" and s.sv == what:
        yield {}, replace(s, cap=replace(s.cap, **read), sv=then)


def read_cursor(t: Terms) -> Successors:
    return _read(t, "cursor", "loader", cursor=t.state.cursor)


def read_loader(t: Terms) -> Successors:
    return _read(t, "loader", "pool", loader=(t.state.pos, t.state.epoch))


def read_spare_pool(t: Terms) -> Successors:
    return _read(t, "pool", "index", pool=t.state.pool)


def read_index(t: Terms) -> Successors:
    return _read(t, "index", "ledger", index=t.state.index, order=t.state.order)


def read_ledger(t: Terms) -> Successors:
    return _read(t, "ledger", "plane", ledger=_ledger_without(t, t.state.cap.index or frozenset()))


def _ledger_without(t: Terms, index: Prompts) -> LedgerRead:
    s = t.state
    return LedgerRead(
        led=altered(s.led, index, "none"),
        idx=s.idx,
        wt=s.wt,
        short=s.short,
        dropped=s.dropped,
        version=s.version,
        trained=s.trained,
    )


def take_cut(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and t.bounds.narrow and s.sv == "requested" and t.may_open:
        cap = replace(
            s.cap,
            cursor=s.cursor,
            loader=(s.pos, s.epoch),
            pool=s.pool,
            index=s.index,
            order=s.order,
            ledger=_ledger_without(t, s.index),
        )
        yield {}, replace(s, cap=cap, sv="copy", door="open")


def copy_policy(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.sv == "copy":
        assert s.cap.ledger is not None
        cap = replace(s.cap, ledger=replace(s.cap.ledger, trained=s.trained))
        yield {}, replace(s, cap=cap, sv="plane", tp="idle" if s.tp == "saving" else s.tp)


def save_plane(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.sv == "plane" and t.inventory_holds:
        keys = frozenset(group for group, _ in s.rows)
        if t.bounds.narrow:
            # A put lists its keys before any unit has stored.
            keys |= {p for p in t.running if s.task[p] == "committing"}
            yield {}, replace(s, cap=replace(s.cap, keys=keys), sv="files")
            return
        units = frozenset(t.bounds.units)
        cap = replace(s.cap, keys=keys, rows=s.rows, derived=s.derived, files=units)
        yield {}, replace(s, cap=cap, sv="close")


def save_unit(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and t.bounds.narrow and s.sv == "files":
        for unit in t.bounds.units:
            if unit not in s.cap.files:
                rows = frozenset(row for row in s.rows if row[1] == unit)
                cap = replace(
                    s.cap,
                    rows=s.cap.rows | rows,
                    derived=s.cap.derived | (s.derived & {group for group, _ in rows}),
                    files=s.cap.files | {unit},
                )
                yield {"unit": unit}, replace(s, cap=cap)


def flush_deferred(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.deferred and s.deferred.isdisjoint(t.pinned):
        nobody: Prompts = frozenset()
        rows = s.rows - t.rows_of(s.deferred)
        yield (
            {"groups": s.deferred},
            replace(s, rows=rows, derived=s.derived - s.deferred, deferred=nobody),
        )


def close_cut(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.sv == "close":
        yield {}, replace(s, door="open", sv="files")


def _write(t: Terms, file: str, after: Collection[Value]) -> Successors:
    s = t.state
    if s.up == "running" and s.sv == "files" and file not in s.cap.files >= set(after):
        yield {}, replace(s, cap=replace(s.cap, files=s.cap.files | {file}))


def write_policy(t: Terms) -> Successors:
    return _write(t, "policy", ())


def write_sidecars(t: Terms) -> Successors:
    if not t.state.deferred:
        yield from _write(t, "sidecars", ("policy", *t.bounds.units))


def write_manifest(t: Terms) -> Successors:
    return _write(t, "manifest", ("policy", "sidecars", *t.bounds.units))


def publish_bundle(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.sv == "files" and s.cap.files >= t.all_files:
        cap = s.cap
        assert cap.cursor is not None
        assert cap.loader is not None
        assert cap.pool is not None
        assert cap.index is not None
        assert cap.ledger is not None
        pos, epoch = cap.loader
        read = cap.ledger
        bundle = Bundle(
            version=read.version,
            cursor=cap.cursor,
            pos=pos,
            epoch=epoch,
            pool=cap.pool,
            index=cap.index,
            order=cap.order,
            led=read.led,
            idx=read.idx,
            wt=read.wt,
            short=read.short,
            keys=cap.keys,
            rows=cap.rows,
            derived=cap.derived,
            trained=read.trained,
            dropped=read.dropped,
            files=cap.files,
            of=Bundle.of_save(read.version),
        )
        yield {}, replace(s, disk=bundle, saved=bundle.version, cap=Capture(), sv="published")


def prune_bundles(t: Terms) -> Successors:
    s = t.state
    if s.up == "running" and s.sv == "published":
        yield {}, replace(s, sv="none", tp=s.tp if t.bounds.narrow else "idle")


def fail_save(t: Terms) -> Successors:
    s = t.state
    open_ = s.sv not in {"none", "published"} and (s.sv != "requested" or t.may_open)
    if s.up == "running" and open_ and s.failures < t.bounds.max_failures:
        yield (
            {},
            replace(
                s,
                failures=s.failures + 1,
                door="open",
                cap=Capture(),
                sv="none",
                tp="idle" if s.tp == "saving" else s.tp,
                saved=max(s.saved, NO_BUNDLE),
            ),
        )


# Start, crash and restore.


def begin_run(t: Terms) -> Successors:
    if t.state.up == "down":
        yield {}, replace(t.state, up="begun")


def crash(t: Terms) -> Successors:
    s = t.state
    if t.may_crash:
        yield (
            {},
            replace(
                initial_state(t.bounds),
                disk=s.disk,
                trained=s.disk.trained,
                dropped=s.disk.dropped,
                failures=s.failures,
                crashes=s.crashes + 1,
            ),
        )


def verify_bundle(t: Terms) -> Successors:
    s = t.state
    if t.published and s.up == "begun":
        whole = s.disk.files == t.all_files and t.bound and t.fits
        yield {}, replace(s, up="verified" if whole else "refused")


def load_plane(t: Terms) -> Successors:
    s = t.state
    if s.up == "verified":
        rows = frozenset((group, unit) for group, unit in s.disk.rows if group in s.disk.index)
        derived = s.disk.derived & {group for group, _ in rows}
        yield {}, replace(s, up="loaded", rows=rows, derived=derived)


def connect_plane(t: Terms) -> Successors:
    s = t.state
    if s.up == "loaded":
        index = s.disk.index
        whole = index <= s.disk.keys and s.rows == t.rows_of(index)
        yield {}, replace(s, up="connected" if whole else "refused")


def restore_index(t: Terms) -> Successors:
    s = t.state
    if s.up == "connected":
        d = s.disk
        idx = {p: n if p in d.index else -1 for p, n in d.idx.items()}
        wt = {p: n if p in d.index else -1 for p, n in d.wt.items()}
        yield {}, replace(s, up="indexed", index=d.index, order=d.order, idx=idx, wt=wt)


def restore_spare_pool(t: Terms) -> Successors:
    s = t.state
    if s.up == "indexed":
        yield {}, replace(s, up="pooled", pool=s.disk.pool)


def restore_ledger(t: Terms) -> Successors:
    s = t.state
    if s.up == "pooled":
        disk = s.disk
        led = altered(disk.led, disk.index, "none")
        yield {}, replace(s, up="owned", led=led, idx=disk.idx, wt=disk.wt, short=disk.short)


def restore_cursor(t: Terms) -> Successors:
    s = t.state
    if s.up == "owned":
        disk = s.disk
        yield (
            {},
            replace(
                s,
                up="restored" if t.cursor_holds else "refused",
                cursor=disk.cursor,
                pos=disk.pos,
                epoch=disk.epoch,
                version=disk.version,
            ),
        )


def start_pumps(t: Terms) -> Successors:
    s = t.state
    if s.up == "restored" or (s.up == "begun" and not t.published):
        yield {}, replace(s, up="started", saved=s.version if t.published else START_DUE)


def end_run(t: Terms) -> Successors:
    s = t.state
    if s.up == "refused" or (s.up == "running" and t.finished and s.saved == s.version):
        yield {}, s


ACTIONS: Mapping[Action, Act] = {
    Action.RESERVE_BATCH: reserve_batch,
    Action.FILL_SPARE_POOL: fill_spare_pool,
    Action.RAISE_EPOCH: raise_epoch,
    Action.DRAIN_SPARE_POOL: drain_spare_pool,
    Action.OPEN_GATE: open_gate,
    Action.COMMIT_ADMISSION: commit_admission,
    Action.LAUNCH_GROUP: launch_group,
    Action.BEGIN_COMMIT: begin_commit,
    Action.STORE_ROW: store_row,
    Action.PUT_ROWS: put_rows,
    Action.COMMIT_GROUP: commit_group,
    Action.ROLLBACK_GROUP: rollback_group,
    Action.FAIL_GROUP: fail_group,
    Action.DROP_GROUP: drop_group,
    Action.SUBSTITUTE_GROUP: substitute_group,
    Action.ABORT_STALE: abort_stale,
    Action.EVICT_GROUPS: evict_groups,
    Action.SELECT_GROUPS: select_groups,
    Action.WRITE_ADVANTAGES: write_advantages,
    Action.TRAIN_STEP: train_step,
    Action.CLEAR_ROWS: clear_rows,
    Action.RAISE_VERSION: raise_version,
    Action.SYNC_WEIGHTS: sync_weights,
    Action.REQUEST_CUT: request_cut,
    Action.OPEN_CUT: open_cut,
    Action.READ_CURSOR: read_cursor,
    Action.READ_LOADER: read_loader,
    Action.READ_SPARE_POOL: read_spare_pool,
    Action.READ_INDEX: read_index,
    Action.READ_LEDGER: read_ledger,
    Action.TAKE_CUT: take_cut,
    Action.COPY_POLICY: copy_policy,
    Action.SAVE_PLANE: save_plane,
    Action.SAVE_UNIT: save_unit,
    Action.FLUSH_DEFERRED: flush_deferred,
    Action.CLOSE_CUT: close_cut,
    Action.WRITE_POLICY: write_policy,
    Action.WRITE_SIDECARS: write_sidecars,
    Action.WRITE_MANIFEST: write_manifest,
    Action.PUBLISH_BUNDLE: publish_bundle,
    Action.PRUNE_BUNDLES: prune_bundles,
    Action.FAIL_SAVE: fail_save,
    Action.BEGIN_RUN: begin_run,
    Action.CRASH: crash,
    Action.VERIFY_BUNDLE: verify_bundle,
    Action.LOAD_PLANE: load_plane,
    Action.CONNECT_PLANE: connect_plane,
    Action.RESTORE_INDEX: restore_index,
    Action.RESTORE_SPARE_POOL: restore_spare_pool,
    Action.RESTORE_LEDGER: restore_ledger,
    Action.RESTORE_CURSOR: restore_cursor,
    Action.START_PUMPS: start_pumps,
    Action.END_RUN: end_run,
}
"""What the spec says of an action, by its name."""
