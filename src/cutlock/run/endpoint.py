"""The endpoint that Prometheus scrapes, and how it is found.

It is a thread of the process. Whatever goes wrong in it is the scraper's loss, not the run's;
only a port that cannot be had is an error, before anything is begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from cutlock.errors import ConfigError

__all__ = ["announced", "require_port", "serving", "targets_file"]


def require_port(host: str, port: int | None) -> None:
    """Refuse a port that cannot be had, before anything is made.

    Raises:
        ConfigError: another process has it, or there is no such address.
    """
    if port is None:
        return
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise _refusal(host, port, error) from error


@contextlib.asynccontextmanager
async def serving(host: str, port: int, collector: Collector) -> AsyncIterator[str]:
    """Serve metrics during the block, and nothing else of the process.

    Args:
        port: 0 takes a free one.

    Yields:
        The URL.

    Raises:
        ConfigError: another process has the port, or there is no such address.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise _refusal(host, port, error) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    try:
        yield f"http://{_bracketed(host)}:{server.server_port}/metrics"
    finally:
        await asyncio.to_thread(stop)


@contextlib.contextmanager
def announced(root: Path, job: str, url: str) -> Iterator[None]:
    """Say in the run directory where to scrape, for Prometheus's `file_sd_configs`.

    A file that cannot be written is left out: the run does not depend on it. At the end it is
    removed, unless another start has written its own over it.
    """
    path = targets_file(root, job)
    target = url.removeprefix("http://").removesuffix("/metrics")
    found = [{"targets": [target], "labels": {"job": job}}]
    content = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.read_bytes() == content:
                path.unlink()


def targets_file(root: Path, job: str) -> Path:
    """Where `announced` says it; there while the run goes on."""
    return root / "metrics" / f"targets_{job}.json"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _refusal(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"metrics.port = {port} cannot be had on metrics.host = {host!r} ({error.strerror}); "
        "give another one, or 0 for a free port"
    )
