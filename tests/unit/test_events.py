"""The event log: what it takes, what survives, and what a strict reader refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cutlock.alphabet import Action
from cutlock.errors import AuditError, MisuseError
from cutlock.events import EventLog, Events, MemoryLog, Record, read_log
from cutlock.stops import NO_STOPS
from tests.support.loop import VirtualClock, at_once


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "events.ndjson"


def write(path: Path, count: int) -> EventLog:
    log = EventLog(path, VirtualClock())
    for version in range(count):
        log.record(Action.RAISE_VERSION, version=version)
    return log


def versions(path: Path) -> list[object]:
    return [record.args["version"] for record in read_log(path)]


def no_room(fd: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestWriting:
    def test_a_record_has_its_place_time_action_and_arguments(self, path: Path) -> None:
        clock = VirtualClock()
        log = EventLog(path, clock)
        log.record(Action.OPEN_CUT, step=3)
        clock.advance(2)
        log.record(Action.BEGIN_COMMIT, group="p1@0", attempt=1, end_weight=4)
        log.close()
        assert list(read_log(path)) == [
            Record(0, 0.0, "OpenCut", {"step": 3}),
            Record(1, 2.0, "BeginCommit", {"group": "p1@0", "attempt": 1, "end_weight": 4}),
        ]
        assert log.count == 2

    def test_every_record_is_there_without_a_sync_or_a_close(self, path: Path) -> None:
        log = write(path, 0)
        for version in range(5):
            log.record(Action.RAISE_VERSION, version=version)
            assert versions(path) == list(range(version + 1))
        log.close()

    def test_a_log_is_one_file_of_one_incarnation(self, path: Path) -> None:
        write(path, 1).close()
        with pytest.raises(FileExistsError):
            EventLog(path)
        assert versions(path) == [0]

    def test_a_closed_log_takes_no_more_records_and_says_so(self, path: Path) -> None:
        log = write(path, 1)
        log.close()
        log.close()
        with pytest.raises(MisuseError, match=r"RaiseVersion on the closed log .*events.ndjson"):
            log.record(Action.RAISE_VERSION, version=1)
        with pytest.raises(MisuseError, match=r"sync\(\) on the closed log"):
            log.sync()
        assert versions(path) == [0]
        assert log.count == 1

    def test_sync_and_close_make_the_records_durable(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        log = write(path, 2)
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
        log.sync()
        log.record(Action.RAISE_VERSION, version=2)
        log.close()
        assert len(synced) == 2
        assert 0 < synced[0] < synced[1] == path.stat().st_size

    def test_a_write_that_is_cut_short_is_continued(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
        write(path, 3).close()
        assert versions(path) == [0, 1, 2]

    def test_half_a_record_on_a_full_disk_spoils_no_other_one(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = write(path, 2)
        real, room = os.write, [10]

        def short_of_room(fd: int, data: bytes) -> int:
            if not room[0]:
                raise OSError(errno.ENOSPC, "disk full")
            taken, room[0] = min(room[0], len(data)), 0
            return real(fd, data[:taken])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short_of_room)
            log.record(Action.RAISE_VERSION, version=2)
            assert versions(path) == [0, 1]
        log.record(Action.RAISE_VERSION, version=3)
        assert versions(path) == [0, 1, 2, 3]
        log.close()

    def test_a_log_on_a_full_disk_cannot_be_synced_and_names_its_file(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = write(path, 2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", no_room)
            log.record(Action.RAISE_VERSION, version=2)
            with pytest.raises(
                OSError, match=f"event log cannot be written: No space left on device: '{path}'"
            ):
                log.sync()
        log.sync()
        assert versions(path) == [0, 1, 2]
        log.close()

    def test_a_log_that_cannot_be_written_is_closed_all_the_same(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = write(path, 2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", no_room)
            log.record(Action.RAISE_VERSION, version=2)
            with pytest.raises(OSError, match="No space left"):
                log.close()
        log.close()
        assert versions(path) == [0, 1]


class TestArguments:
    @pytest.mark.parametrize(
        ("action", "args", "message"),
        [
            (Action.OPEN_CUT, {}, "OpenCut takes the arguments step, not none"),
            (Action.OPEN_CUT, {"step": 1, "more": 2}, "arguments step, not step, more"),
            (Action.OPEN_CUT, {"steps": 1}, "arguments step, not steps"),
            (Action.CONNECT_PLANE, {"step": 1}, "ConnectPlane takes the arguments none, not step"),
            (Action.PUT_ROWS, {"group": "g"}, "arguments group, attempt, not group"),
        ],
    )
    @pytest.mark.parametrize("kind", ["file", "memory"])
    def test_arguments_that_are_not_the_alphabets_are_refused(
        self, path: Path, kind: str, action: Action, args: dict[str, object], message: str
    ) -> None:
        log: Events = EventLog(path) if kind == "file" else MemoryLog()
        with pytest.raises(MisuseError, match=f"{message}; the table is cutlock.alphabet"):
            log.record(action, **args)
        assert log.count == 0
        log.close()

    def test_a_memory_log_keeps_what_it_was_given(self) -> None:
        log = MemoryLog(VirtualClock())
        log.record(Action.RAISE_EPOCH, epoch=1)
        log.sync()
        log.close()
        assert log.records == [Record(0, 0.0, "RaiseEpoch", {"epoch": 1})]
        assert log.count == 1


def without(number: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: lines[:number] + lines[number + 1 :]


class TestReading:
    def test_a_last_line_without_an_end_is_left_out(self, path: Path) -> None:
        write(path, 3).close()
        whole = path.read_bytes()
        last = whole.splitlines(keepends=True)[-1]
        for kept in range(len(last)):
            path.write_bytes(whole[: len(whole) - len(last) + kept])
            assert versions(path) == [0, 1]

    def test_an_empty_log_has_no_records(self, path: Path) -> None:
        write(path, 0).close()
        assert list(read_log(path)) == []

    @pytest.mark.parametrize(
        ("change", "line", "message"),
        [
            (without(0), 1, "record 1 where 0 was due"),
            (without(2), 3, "record 3 where 2 was due; a line of the log was lost, repeated"),
            (lambda lines: [*lines[:2], *lines[1:]], 3, "record 1 where 2 was due"),
            (lambda lines: [*lines[:2], lines[3], lines[2]], 3, "record 3 where 2 was due"),
            (lambda lines: [*lines, lines[0]], 5, "record 0 where 4 was due"),
            (lambda lines: [*lines[:2], b"\n", *lines[2:]], 3, "not an event record"),
        ],
        ids=["first lost", "one lost", "repeated", "moved", "appended", "empty"],
    )
    def test_a_line_that_is_not_the_next_record_is_refused_with_its_number(
        self, path: Path, change: Callable[[list[bytes]], list[bytes]], line: int, message: str
    ) -> None:
        write(path, 4).close()
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
        read = read_log(path)
        with pytest.raises(AuditError, match=f"events.ndjson:{line}: {message}"):
            list(read)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b'{"seq":0,"t":0,"action":"RaiseVersio","args":{"version":1}}', "unknown action"),
            (b'{"seq":0,"t":0,"action":"raise_version","args":{"version":1}}', "unknown action"),
            (b'{"seq":0,"t":0,"action":"RAISE_VERSION","args":{}}', "unknown action"),
            (
                b'{"seq":0,"t":0,"action":"RaiseVersion","args":{"step":1}}',
                r"RaiseVersion has the arguments \['step'\], not \['version'\]",
            ),
            (b'{"seq":0,"t":0,"action":"RaiseVersion"}', "not an event record"),
            (
                b'{"seq":0,"t":0,"action":"RaiseVersion","args":{"version":1},"more":1}',
                "unknown field `more`",
            ),
            (b'{"seq":"0","t":0,"action":"OpenCut","args":{"step":1}}', "Expected `int`, got"),
            (b'{"seq":0,"t":0,"action":"OpenCut","args":{"step":\xff}}', "not an event record"),
            (b'{"seq":0,"t":0,"action":"Open\xffCut","args":{"step":1}}', "not an event record"),
            (b"[]", "not an event record"),
            (b'{"seq":0', "not an event record"),
            (b"\x00\x00\x00", "not an event record"),
        ],
    )
    def test_a_line_that_is_no_record_of_the_alphabet_is_refused(
        self, path: Path, line: bytes, message: str
    ) -> None:
        path.parent.mkdir()
        path.write_bytes(line + b"\n")
        read = read_log(path)
        with pytest.raises(AuditError, match=f"events.ndjson:1: .*{message}"):
            list(read)

    def test_what_comes_before_the_first_bad_line_is_read(self, path: Path) -> None:
        write(path, 3).close()
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:2], b"torn\n"]))
        found: list[Record] = []
        with pytest.raises(AuditError):
            found.extend(read_log(path))
        assert [record.seq for record in found] == [0, 1]

    def test_a_record_is_one_line_whatever_its_arguments_hold(self, path: Path) -> None:
        log = EventLog(path)
        log.record(Action.END_RUN, reason='line one\nline "two"\r\u2028\x85 end')
        log.close()
        (record,) = read_log(path)
        assert record.args == {"reason": 'line one\nline "two"\r\u2028\x85 end'}
        assert path.read_bytes().count(b"\n") == 1
        assert msgspec.json.decode(path.read_bytes())["seq"] == 0


def test_nobody_is_held_at_a_stop_point_where_nobody_listens() -> None:
    for action in Action:
        at_once(NO_STOPS.reach(action, group="p1@0"))
