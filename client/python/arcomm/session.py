"""The process's attachment to the daemon."""

from __future__ import annotations

import ctypes
import os
import threading

from . import abi
from .library import check, load, milliseconds

_lock = threading.RLock()
_inits = 0  # how often init() has been called and not been undone
_on_gpu = False


def init(device: str | None = None, timeout: float | None = None, runtime_dir: str | None = None) -> None:
    """Attaches this process to its node's daemon. Calls may nest, with the same arguments.

    Args:
        device: "host:0", "gpu" or "GPU-<uuid>"; default $ARCOMM_DEVICE, then "host:0".
        timeout: the deadline of operations and of calls to the daemon, in seconds; default the daemon's.
        runtime_dir: where the daemon's sockets are; default $ARCOMM_RUNTIME_DIR, then /run/arcommd.

    Without it the first call that needs the daemon attaches with the defaults.
    """
    global _inits, _on_gpu
    named = device or os.environ.get("ARCOMM_DEVICE") or "host:0"
    config = abi.Config(
        struct_size=ctypes.sizeof(abi.Config),
        runtime_dir=runtime_dir.encode() if runtime_dir else None,
        device=named.encode(),
        timeout_ms=milliseconds(timeout),
    )
    check(load().arcInit(ctypes.byref(config)))
    with _lock:
        _inits += 1
        _on_gpu = named.lower().startswith("gpu")


def finalize() -> None:
    """Undoes one init(); the last one detaches, and ends communicators that are open."""
    global _inits
    check(load().arcFinalize())
    with _lock:
        _inits = max(_inits - 1, 0)


def ensure(timeout: float | None = None) -> None:
    """Attaches with the defaults, but for the timeout, where nobody has called init()."""
    with _lock:
        if _inits == 0:
            init(timeout=timeout)


def is_attached() -> bool:
    """Whether init() has been called, by whomever, and not been undone."""
    return _inits > 0


def on_gpu() -> bool:
    """Whether the session that is attached, or was last, works on a GPU's memory."""
    return _on_gpu


def version() -> str:
    """The version of libarclient: "0.1.0"."""
    number = ctypes.c_int()
    check(load().arcGetVersion(ctypes.byref(number)))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
