"""Draws the pictures of the documentation: `python docs/pictures/draw.py`.

Time runs downwards and every lane is a column. What happens in the three time lines is read from
kept traces, never made up: the counterexample of the early cursor, and logs of real runs. Each
picture carries its colours for light and dark pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TRACES = FOLDER.parents[1] / "traces"

ROW = 25
HEAD = 66
PAD = 16
STYLE = """
svg { --page: #fbfdfc; --line: #c9d3d0; --text: #1d2b28; --soft: #5b6b67; --box: #e3eeeb;
  --cut: #00796b; --cut-fill: #00796b22; --bad: #b3261e; --bad-fill: #b3261e1c;
  --pin: #8a5a00; --pin-fill: #d08a0026; --wait-fill: #5b6b6724; }
@media (prefers-color-scheme: dark) { svg { --page: #1b2321; --line: #3c4a46; --text: #e4ece9;
  --soft: #9fb0ab; --box: #2a3834; --cut: #5fd0bd; --cut-fill: #5fd0bd26; --bad: #ff9a90;
  --bad-fill: #ff9a9026; --pin: #f0bd5c; --pin-fill: #f0bd5c26; --wait-fill: #9fb0ab26; } }
text { font: 13px system-ui, sans-serif; fill: var(--text); }
.action { font: 12.5px ui-monospace, monospace; }
.lane { font-weight: 600; }
.soft { fill: var(--soft); font-size: 12px; }
.title { font-weight: 600; font-size: 15px; }
.cut { fill: var(--cut); } .bad { fill: var(--bad); } .pin { fill: var(--pin); }
.strong { font-weight: 600; }
.page { fill: var(--page); stroke: var(--line); }
.box { fill: var(--box); stroke: var(--line); }
.box-cut { fill: var(--cut-fill); stroke: var(--cut); }
.box-bad { fill: var(--bad-fill); stroke: var(--bad); }
.bar-cut { fill: var(--cut-fill); } .bar-pin { fill: var(--pin-fill); }
.bar-bad { fill: var(--bad-fill); } .bar-wait { fill: var(--wait-fill); }
.grid { stroke: var(--line); } .dash { stroke: var(--line); stroke-dasharray: 3 4; }
.arrow { stroke: var(--soft); fill: none; stroke-width: 1.4; marker-end: url(#tip); }
.arrow-bad { stroke: var(--bad); stroke-dasharray: 5 4; }
"""


@dataclass(frozen=True)
class Row:
    """Something that happens in one lane, with a word about it."""

    lane: str
    text: str
    note: str = ""
    kind: str = ""
    """`cut`, `bad`, `pin`, or nothing."""
    after_gap: bool = False
    """Whether a line is drawn across the lanes before it."""


@dataclass(frozen=True)
class Bar:
    """Something that lasts from one row to another, behind the rows of some lanes."""

    first: int
    last: int
    lanes: tuple[str, ...]
    text: str
    kind: str
    at: int | None = None
    """The row that its text stands in; None for the last one."""


class Picture:
    """An SVG that is put together line by line."""

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self.name = name
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" '
            'fill="context-stroke"/></marker></defs>',
            f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" '
            'rx="8"/>',
        ]

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """One line of text; `y` is its base line."""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.lines.append(f'<text x="{x:g}" y="{y:g}" class="{kind}"{place}>{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box") -> None:
        """A rectangle."""
        self.lines.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            'rx="5"/>'
        )

    def path(self, path: str, kind: str) -> None:
        """A line or an arrow."""
        self.lines.append(f'<path class="{kind}" d="{path}"/>')

    def svg(self) -> str:
        """The file's text."""
        return "\n".join([*self.lines, "</svg>\n"])


def timeline(
    name: str, title: str, lanes: Sequence[str], rows: Sequence[Row], bars: Iterable[Bar] = ()
) -> Picture:
    """Lanes as columns, one row after the other, and their notes at the right."""
    lane, notes = 150, 320
    width = 2 * PAD + lane * len(lanes) + notes
    height = HEAD + ROW * len(rows) + 2 * PAD
    picture = Picture(name, title, width, height)
    picture.text(PAD + 4, 27, title, "title")
    left = {name_: PAD + lane * place for place, name_ in enumerate(lanes)}
    top = [HEAD + PAD // 2 + ROW * place for place in range(len(rows))]
    for name_, x in left.items():
        picture.text(x + 10, HEAD - 14, name_, "lane")
        if x > PAD:
            picture.path(f"M{x} {HEAD - 28}V{height - PAD}", "grid")
    picture.path(f"M{PAD} {HEAD - 4}H{width - PAD}", "grid")
    for bar in bars:
        x = min(left[name_] for name_ in bar.lanes)
        picture.box(
            x + 4,
            top[bar.first] + 1,
            lane * len(bar.lanes) - 8,
            top[bar.last] - top[bar.first] + ROW - 2,
            f"bar-{bar.kind}",
        )
        if bar.text:
            end = x + lane * len(bar.lanes) - 10
            place = bar.last if bar.at is None else bar.at
            picture.text(end, top[place] + 17, bar.text, f"soft {bar.kind}", "end")
    for row, y in zip(rows, top, strict=True):
        if row.after_gap:
            picture.path(f"M{PAD} {y}H{width - PAD}", "dash")
        picture.text(left[row.lane] + 10, y + 17, row.text, f"action {row.kind}")
        if row.note:
            picture.text(PAD + lane * len(lanes) + 14, y + 17, row.note, f"soft {row.kind}")
    return picture


def log(run: str, incarnation: int, first: int, last: int) -> list[dict[str, Any]]:
    """Records of a kept log, from one place in it to another."""
    file = TRACES / "runs" / run / "events" / f"incarnation-{incarnation}.ndjson"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    return records[first : last + 1]


LANES = ("rollout pump", "train pump", "cut", "plane", "disk")
LANE_OF = {
    **dict.fromkeys(
        [
            "ReserveBatch",
            "OpenGate",
            "CommitAdmission",
            "RaiseEpoch",
            "FillSparePool",
            "LaunchGroup",
            "BeginCommit",
            "CommitGroup",
            "RollbackGroup",
            "FailGroup",
            "DropGroup",
            "SubstituteGroup",
        ],
        "rollout pump",
    ),
    **dict.fromkeys(
        [
            "SelectGroups",
            "WriteAdvantages",
            "TrainStep",
            "ClearRows",
            "RaiseVersion",
            "SyncWeights",
            "EvictGroups",
        ],
        "train pump",
    ),
    **dict.fromkeys(
        [
            "RequestCut",
            "TakeCut",
            "OpenCut",
            "ReadCursor",
            "ReadLoader",
            "ReadSparePool",
            "ReadIndex",
            "ReadLedger",
            "CloseCut",
            "CopyPolicy",
        ],
        "cut",
    ),
    **dict.fromkeys(["PutRows", "SavePlane", "SaveUnit", "FlushDeferred"], "plane"),
    **dict.fromkeys(
        ["WritePolicy", "WriteSidecars", "WriteManifest", "PublishBundle", "PruneBundles"], "disk"
    ),
}


def short(group: str) -> str:
    """A group of the toy task, as it is named in pictures."""
    return group.removeprefix("reverse-")


def names(groups: Sequence[str]) -> str:
    """Groups in a note."""
    return ", ".join(map(short, groups)) or "nothing"


def note_of(record: dict[str, Any]) -> str:
    """What a record says, in words."""
    args = record["args"]
    match record["action"]:
        case "BeginCommit" | "LaunchGroup" | "FailGroup" | "RollbackGroup" | "PutRows":
            failed = ": its put failed" if record["action"] == "RollbackGroup" else ""
            return f"{short(args['group'])}{failed}"
        case "CommitGroup":
            return f"{short(args['group'])}: rows, entry and ledger in one step"
        case "TakeCut":
            return f"index: {names(args['index'])}; ledger: {len(args['ledger'])}"
        case "ReadCursor":
            return f"cursor {args['cursor']}"
        case "ReadLoader":
            return f"epoch {args['epoch']}, position {args['position']}"
        case "ReadSparePool":
            return f"spare pool: {names(args['groups'])}"
        case "ReadIndex":
            return f"index: {names(args['groups'])}"
        case "ReadLedger":
            return f"ledger: {names(args['groups'])}"
        case "SelectGroups" | "TrainStep":
            return f"step {args['step']}: {names(args['groups'])}"
        case "ClearRows":
            return f"of {names(args['groups'])}: deferred, they are pinned"
        case "FlushDeferred":
            return f"clears {names(args['groups'])}"
        case "RaiseVersion":
            return f"trainer version {args['version']}"
        case "SaveUnit":
            return f"unit {args['unit']} has written its rows"
        case "PublishBundle":
            return f"{args['bundle']} can be resolved"
        case "SubstituteGroup":
            return f"{short(args['substitute'])} replaces {short(args['group'])}"
    return ""


def rows_of(records: Iterable[dict[str, Any]], said: dict[str, str]) -> list[Row]:
    """One row for each record; `said` are notes that the picture gives itself, by action."""
    rows = []
    for record in records:
        action = record["action"]
        kind = {"TakeCut": "cut", "OpenCut": "cut", "CloseCut": "cut"}.get(action, "")
        kind = "pin" if action in {"ClearRows", "FlushDeferred"} else kind
        rows.append(Row(LANE_OF[action], action, said.get(action) or note_of(record), kind))
    return rows


def place_of(rows: Sequence[Row], action: str) -> int:
    """The first row with that action."""
    return next(place for place, row in enumerate(rows) if row.text == action)


def fault() -> Picture:
    """The early cursor, from the counterexample that TLC found."""
    trace = json.loads((TRACES / "counterexamples" / "story_cursor_early.itf.json").read_text())
    states = trace["states"]

    def row(step: int, lane: str, note: str, kind: str = "", *, after_gap: bool = False) -> Row:
        state = states[step]
        return Row(
            lane,
            state["#meta"]["action"],
            note.format(cursor=state["cursor"], version=state["version"], read=read(state)),
            kind,
            after_gap,
        )

    def read(state: dict[str, Any]) -> object:
        return state["cap"]["cursor"].get("v", "")

    rows = [
        row(3, "save", "reads {read}; no cut is open yet", "bad"),
        row(4, "rollout pump", "stamps a batch 7; cursor {cursor}"),
        row(21, "rollout pump", "the batch is finished, in the buffer"),
        row(23, "save", "only now the cut is taken"),
        row(27, "save", "reads the buffer, which holds stamp 7"),
        row(34, "disk", "cursor 6 beside groups of step 7", "bad"),
        row(35, "rollout pump", "the process dies and restarts", after_gap=True),
        row(43, "rollout pump", "cursor {cursor}, from the bundle"),
        row(47, "rollout pump", "the next batch is stamped 7 as well", "bad"),
        row(64, "train pump", "step 7 has four groups: those it had"),
        row(68, "train pump", "trainer at version {version}"),
        row(70, "train pump", "four prompts dropped, never trained", "bad"),
    ]
    lanes = ("rollout pump", "train pump", "save", "disk")
    bars = [Bar(0, 3, ("save",), "nothing is shut", "bad", at=1)]
    return timeline("fault", "A cursor that is read too early: what TLC found", lanes, rows, bars)


def narrow() -> Picture:
    """A narrow save with commits beside it, from a log."""
    records = log("narrow", 1, 16, 40)
    kept = [r for r in records if r["action"] not in {"FailGroup", "LaunchGroup"}]
    said = {
        "RequestCut": "waits for the loader's slot only, if one is open",
        "CopyPolicy": "the train pump may go on",
        "SavePlane": "key map; then the units, one by one",
        "WriteManifest": "last: size and sha256 of every file",
    }
    rows = rows_of(kept, said)
    bars = [
        Bar(place_of(rows, "TakeCut"), place_of(rows, "TakeCut"), LANES, "", "cut"),
        Bar(
            place_of(rows, "RequestCut"),
            place_of(rows, "CopyPolicy"),
            ("train pump",),
            "waits",
            "wait",
        ),
    ]
    return timeline(
        "narrow",
        "Narrow cut: one step reads everything, the rest is written beside",
        LANES,
        rows,
        bars,
    )


def pinned() -> Picture:
    """A narrow save with a training step beside it, from a log."""
    said = {
        "CopyPolicy": "weights of version 2 are kept",
        "WriteManifest": "last: size and sha256 of every file",
    }
    rows = rows_of(log("narrow", 1, 81, 97), said)
    units = [place for place, row in enumerate(rows) if row.text == "SaveUnit"]
    bars = [
        Bar(place_of(rows, "TakeCut"), units[-1], ("plane",), "rows pinned", "pin", at=3),
        Bar(place_of(rows, "TakeCut"), place_of(rows, "TakeCut"), LANES[:3], "", "cut"),
        Bar(
            place_of(rows, "RequestCut"),
            place_of(rows, "CopyPolicy"),
            ("train pump",),
            "waits",
            "wait",
        ),
    ]
    return timeline(
        "pinned", "Pinned rows: a step trains beside the save, its clear waits", LANES, rows, bars
    )


def full() -> Picture:
    """A save in the full window, from a log."""
    records = log("in_order", 1, 18, 51)
    kept = [r for r in records if r["action"] not in {"LaunchGroup", "FailGroup", "DropGroup"}]
    said = {
        "RequestCut": "the door closes for every slot",
        "OpenCut": "all slots have ended",
        "SavePlane": "key map and rows of every unit",
        "CloseCut": "the door opens",
        "WritePolicy": "the trainer waits, rollouts go on",
        "WriteManifest": "last: size and sha256 of every file",
    }
    rows = rows_of(kept, said)
    opened, closed = place_of(rows, "OpenCut"), place_of(rows, "CloseCut")
    asked = place_of(rows, "RequestCut")
    bars = [
        Bar(asked, opened - 1, ("cut",), "drain", "wait"),
        Bar(opened, closed, ("cut",), "exclusive", "cut"),
        Bar(opened, closed, ("rollout pump",), "no slot is held", "cut"),
        Bar(asked, place_of(rows, "PublishBundle"), ("train pump",), "waits", "wait"),
    ]
    return timeline(
        "full",
        "Full window: nothing moves between the first read and the last row",
        LANES,
        rows,
        bars,
    )


def owners() -> Picture:
    """Who may own a prompt, and what moves it."""
    picture = Picture("owners", "One owner at any time", 876, 400)
    picture.text(PAD + 4, 27, "One owner at any time: boxes are owners, arrows are slots", "title")
    boxes = {
        "unread": (24, 70, "unread", "still in the loader"),
        "pool": (24, 210, "spare pool", "held back"),
        "reserved": (250, 70, "ledger", "RESERVED"),
        "admitted": (476, 70, "ledger", "ADMITTED, in flight"),
        "buffer": (702, 70, "replay buffer", "finished, indexed"),
        "claimed": (702, 210, "training step", "claimed"),
        "dropped": (476, 210, "dropped", "with a reason"),
        "trained": (702, 310, "trained", "once"),
    }
    for key, (x, y, one, two) in boxes.items():
        picture.box(x, y, 150, 52, "box-cut" if key in {"trained", "dropped"} else "box")
        picture.text(x + 75, y + 23, one, "strong", "middle")
        picture.text(x + 75, y + 41, two, "soft", "middle")

    def arrow(path: str, x: float, y: float, label: str, anchor: str = "middle") -> None:
        picture.path(path, "arrow")
        picture.text(x, y, label, "action soft", anchor)

    arrow("M174 96H248", 212, 60, "ReserveBatch")
    arrow("M400 96H474", 438, 60, "CommitAdmission")
    arrow("M626 96H700", 664, 60, "CommitGroup")
    arrow("M99 122V208", 107, 170, "FillSparePool", "start")
    arrow("M174 226C240 220 300 190 318 124", 300, 206, "DrainSparePool", "start")
    arrow("M530 122V208", 522, 162, "DropGroup", "end")
    picture.text(522, 178, "AbortStale", "action soft", "end")
    arrow("M720 122C690 170 660 200 628 226", 664, 186, "EvictGroups", "end")
    arrow("M790 122V208", 784, 170, "SelectGroups", "end")
    arrow("M777 262V308", 785, 290, "TrainStep", "start")
    picture.text(
        24, 340, "SubstituteGroup drops a group that keeps failing and admits a spare", "soft"
    )
    picture.text(24, 358, "in its place, in one slot.", "soft")
    return picture


def restore() -> Picture:
    """The stages of a restore, each of which takes what the one before it made."""
    stages = [
        (
            "verify_for_resume",
            "ResumePlan",
            "VerifyBundle",
            "digests, then decoding, then the rules for a changed configuration",
            "BundleCorruptError, ConfigMismatchError, CapacityError",
        ),
        (
            "load_plane",
            "PlaneReady",
            "LoadPlane",
            "bootstrap client, into an unused store; rows outside the index are pruned",
            "PlaneTouchedError",
        ),
        (
            "connect_plane",
            "PlaneConnected",
            "ConnectPlane",
            "connect-only client; the store holds exactly the rows of the index",
            "InventoryError, ConnectError",
        ),
        (
            "restore_state",
            "Restored",
            "RestoreIndex, RestoreSparePool, RestoreLedger, RestoreCursor",
            "index, permits, spare pool, ledger, shortfall; loader and cursor last; one slot",
            "InvariantError",
        ),
        (
            "Controller.run",
            "",
            "StartPumps",
            "ADMITTED groups first, oldest stamp first; then RESERVED; then the loader",
            "",
        ),
    ]
    step = 92
    picture = Picture("restore", "A restore, stage by stage", 900, 36 + step * len(stages))
    picture.text(
        PAD + 4, 27, "A restore: each stage takes what only the previous stage makes", "title"
    )
    for place, (call, makes, actions, what, refuses) in enumerate(stages):
        y = 46 + step * place
        picture.box(24, y, 200, 56, "box-cut" if place == 0 else "box")
        picture.text(124, y + (24 if place == 0 else 33), call, "action strong", "middle")
        if place == 0:
            picture.text(124, y + 43, "changes nothing", "soft cut", "middle")
        picture.text(244, y + 16, actions, "action")
        picture.text(244, y + 34, what, "soft")
        if refuses:
            picture.text(244, y + 51, f"refuses with {refuses}", "soft bad")
        if makes:
            picture.path(f"M124 {y + 58}V{y + step - 3}", "arrow")
            picture.text(134, y + 79, makes, "action cut")
    return picture


def bundle() -> Picture:
    """The names that a bundle's directory has, and when."""
    picture = Picture("bundle", "The life of a bundle", 880, 330)
    picture.text(
        PAD + 4, 27, "The life of a bundle: only one of these names can be resumed from", "title"
    )
    boxes = {
        "tmp": (24, 70, 190, "tmp_step_8/", "parts are written and synced"),
        "sealed": (290, 70, 190, "tmp_step_8/", "manifest.json, written last"),
        "step": (556, 70, 200, "step_8/", "resolvable, never changed"),
        "gone": (24, 220, 190, "removed", "by the next save or start"),
        "abandoned": (290, 220, 190, "abandoned_step_8/", "kept until you remove it"),
        "trash": (556, 220, 200, "trash_step_8/", "its files are being removed"),
    }
    for key, (x, y, width, one, two) in boxes.items():
        picture.box(x, y, width, 56, "box-cut" if key == "step" else "box")
        picture.text(x + width / 2, y + 24, one, "action strong", "middle")
        picture.text(x + width / 2, y + 43, two, "soft", "middle")

    def arrow(
        path: str, x: float, y: float, label: str, kind: str = "", anchor: str = "middle"
    ) -> None:
        picture.path(path, f"arrow {'arrow-bad' if kind == 'bad' else ''}")
        picture.text(x, y, label, f"soft {kind}", anchor)

    arrow("M214 98H288", 251, 60, "WriteManifest")
    arrow("M480 98H554", 517, 60, "PublishBundle")
    arrow("M119 126V218", 127, 176, "killed, or FailSave", "bad", "start")
    arrow("M340 126C320 170 260 190 190 218", 318, 176, "killed before the rename", "bad", "start")
    arrow("M590 126C560 180 500 200 430 218", 500, 206, "resume from an older bundle", "", "start")
    arrow("M690 126V218", 698, 168, "PruneBundles,", "", "start")
    picture.text(698, 184, "all but the newest", "soft")
    picture.text(
        PAD + 4,
        312,
        "Every rename is synced before anything relies on it: a power loss "
        "leaves one name or the other, with all of its files.",
        "soft",
    )
    return picture


PICTURES = (fault, narrow, pinned, full, owners, restore, bundle)


def main(folder: Path = FOLDER) -> None:
    """Write every picture into a folder."""
    for draw in PICTURES:
        picture = draw()
        (folder / f"{picture.name}.svg").write_text(picture.svg())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
