"""`cutlock` as users start it, in a process of its own, and the processes of its Ray."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path


class Cutlock:
    """One command that runs; `with` ends it at the latest.

    Args:
        output: where stdout and stderr go, a new directory.
        within: command that runs another one, e.g. in the namespaces of a `Disk`.
    """

    def __init__(self, output: Path, *arguments: object, within: Sequence[str] = ()) -> None:
        self.arguments = [*map(str, arguments)]
        output.mkdir()
        self._files = [output / "stdout", output / "stderr"]
        with self._files[0].open("wb") as stdout, self._files[1].open("wb") as stderr:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", "cutlock", *self.arguments],
                stdout=stdout,
                stderr=stderr,
            )

    def __enter__(self) -> Cutlock:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()

    @property
    def stdout(self) -> str:
        return self._files[0].read_text()

    @property
    def stderr(self) -> str:
        return self._files[1].read_text()

    def ends(self, *, code: int, limit_s: float = 240.0) -> None:
        """Wait for the end, which has to be this one."""
        self.process.wait(limit_s)
        assert self.process.returncode == code, self.stdout + self.stderr
        assert "Traceback" not in self.stderr

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something on disk; the end of the process is a failure."""
        while not holds():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
            assert self.process.poll() is None, self.stdout + self.stderr

    def kill(self, actor: str) -> None:
        """SIGKILL one of the Ray actors of that class."""
        os.kill(self.process_of(actor), signal.SIGKILL)

    def process_of(self, actor: str) -> int:
        """The process of one of the Ray actors of that class."""
        for process in _descendants(self.process.pid):
            if f"ray::{actor}" in _command(process):
                return process
        raise AssertionError(f"no {actor} runs under `cutlock {' '.join(self.arguments)}`")

    def listening(self) -> list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]]:
        """Address and command of everything that listens, in this process and below."""
        owners: dict[str, int] = {}
        for process in (self.process.pid, *_descendants(self.process.pid)):
            for target in _open_files(process):
                if found := re.fullmatch(r"socket:\[(\d+)\]", target):
                    owners[found[1]] = process
        return [
            (address, _command(owners[inode])) for address, inode in _listeners() if inode in owners
        ]


class Disk:
    """A small disk that a test can fill and write-protect; `with` mounts it.

    It is a tmpfs in a mount namespace, so it needs no more rights than a user has. Processes
    that are to see it are run `within` it.

    Args:
        where: an empty directory.
    """

    def __init__(self, where: Path, megabytes: int) -> None:
        self._where = where
        mount = f"mount -t tmpfs -o size={megabytes}m none {where}"
        self._holder = subprocess.Popen(
            [
                "unshare",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                f"{mount} && echo mounted && exec sleep 9999",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        holder = str(self._holder.pid)
        self.within = ["nsenter", "--user", "--mount", "--preserve-credentials", "-t", holder]

    def __enter__(self) -> Disk:
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "mounted\n"
        return self

    def __exit__(self, *error: object) -> None:
        self._holder.kill()
        self._holder.communicate()

    def seen(self, path: Path) -> Path:
        """A path on the disk, as this process sees it."""
        return Path(f"/proc/{self._holder.pid}/root") / path.relative_to("/")

    @contextlib.contextmanager
    def full(self, left: int) -> Iterator[None]:
        """Nothing but so many bytes is free, until the end of the block."""
        ballast = self.seen(self._where / "ballast")
        free = shutil.disk_usage(ballast.parent).free
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - left)
        try:
            yield
        finally:
            ballast.unlink()

    @contextlib.contextmanager
    def read_only(self, directory: Path) -> Iterator[None]:
        """Nothing below the directory can be changed, until the end of the block."""
        self._do("mount", "--bind", directory, directory)
        self._do("mount", "-o", "remount,bind,ro", directory)
        try:
            yield
        finally:
            # At once, whoever stands in it.
            self._do("umount", "--lazy", directory)

    def _do(self, *command: object) -> None:
        subprocess.run([*self.within, *map(str, command)], check=True)


@contextlib.contextmanager
def frozen(process: int) -> Iterator[None]:
    """A process is stopped in all its threads until the end of the block, or is killed in it."""
    os.kill(process, signal.SIGSTOP)
    try:
        while not _all_threads_stopped(process):
            os.sched_yield()
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def wait_for_end(process: int) -> None:
    """Wait until a process, of whomever, has ended."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process)
        try:
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)


def _all_threads_stopped(process: int) -> bool:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def _listeners() -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]]:
    """Address and inode of all TCP and UDP sockets that take what comes."""
    for kind, listens in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == listens:
                yield _address(local.partition(":")[0]), inode


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """As the kernel prints it: words of 32 bits, each in the byte order of the machine."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    return getattr(address, "ipv4_mapped", None) or address


def _open_files(process: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(entry)


def _descendants(ancestor: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and ancestor in _ancestors(int(entry.name)):
            yield int(entry.name)


def _ancestors(process: int) -> Iterator[int]:
    while process > 1:
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return
        process = int(stat.rpartition(")")[2].split()[1])
        yield process


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
