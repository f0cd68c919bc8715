"""Connects to a Ray cluster, or starts one on this machine that ends with this process.

Replicas accept pickles on a port that Serve opens on every address (`serve/_private/replica.py`).
Only Ray's token keeps strangers out, so a cluster without a token is refused.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlcc.errors import DeviceError, UnsupportedError
from mlcc.util.extras import require

STORE_BYTES = 256 << 20
"""Size of the object store of a local cluster: the state of migrating requests passes through
it."""
_LOCAL_ENV = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the node and its listeners use 127.0.0.1
    "RAY_SERVE_DEFAULT_HTTP_HOST": "127.0.0.1",
    "RAY_enable_metrics_collection": "0",
}
_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",  # doubles the messages per second
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
}
"""Read when ray is imported, and by the processes that it starts."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Make this process a Ray driver inside the context. `address` None = start a cluster on this
    machine only.

    Raises UnsupportedError without ray or with its token turned off, DeviceError if the cluster
    cannot be reached.
    """
    require("ray", "ray", "--ray")
    check_token()
    for name, value in {**_ENV, **(_LOCAL_ENV if address is None else {})}.items():
        os.environ.setdefault(name, value)
    if address is None:
        with _local_cluster():
            yield
        return
    import ray

    _quiet_serve_log()
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise DeviceError(
            f"there is no Ray at {address} ({error}); start one (`ray start --head`), or leave "
            "--address out for one of this machine's own"
        ) from None
    try:
        check_token(connected=True)
        yield
    finally:
        ray.shutdown()


def check_token(connected: bool = False) -> None:
    """Raise UnsupportedError if anyone who reaches a replica's port could run code there: if the
    token is turned off or, with `connected`, if it was not turned on."""
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode is None and connected:  # ray sets it where it finds a token; `ray start` needs none
        raise UnsupportedError(
            "this Ray runs without a token, and replicas take pickles from all who reach their "
            "ports; start it on each machine with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN, "
            "and set both here"
        )
    if mode is not None and mode.lower() != "token":
        raise UnsupportedError(
            "RAY_AUTH_MODE turns Ray's token off, and replicas take pickles from all who reach "
            "their ports; unset it"
        )


def serve_status() -> Any:
    """Return Ray Serve's `ServeStatus`. It is empty if Serve does not run, also if others ended it
    since this process last asked."""
    from ray import serve
    from ray.exceptions import RayActorError
    from ray.serve.schema import ServeStatus

    try:
        return serve.status()
    except RayActorError:
        return ServeStatus()


def in_use(found: Any) -> bool:
    """Return whether this `ServeStatus` has an application in use. An application that Ray failed
    to build does not count."""
    return any(
        one.deployments or one.status != "DEPLOY_FAILED" for one in found.applications.values()
    )


@contextmanager
def _local_cluster() -> Iterator[None]:
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else ray writes one to ~/.ray
    os.environ["RAY_AUTH_MODE"] = "token"
    import ray
    from ray import serve

    _quiet_serve_log()
    folder = tempfile.mkdtemp(prefix="mlcc-ray-")
    try:
        _start(folder)
        yield
    finally:
        if ray.is_initialized():
            serve.shutdown()  # type: ignore[no-untyped-call]
            ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: str, again: bool = True) -> None:
    """Start Ray, with one retry: Ray allows itself 30 s, which reading its files can take on a busy
    machine. Raises DeviceError; Ray has no error type of its own for this."""
    import ray

    try:
        ray.init(
            address="local",  # do not join a running cluster
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=folder,
        )
    except Exception as error:
        ray.shutdown()
        if again:
            return _start(folder, again=False)
        raise DeviceError(
            f"Ray does not start on this machine: {error} It has 30 s for that and needs a "
            "gigabyte of memory: try again when less runs beside it"
        ) from error


def _quiet_serve_log() -> None:
    """Silence Serve's log: `routed_engine` reports lost replicas. Importing Serve configures its
    logger, so the import comes first."""
    from ray import serve  # noqa: F401

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
