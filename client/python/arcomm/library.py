"""Finds libarclient and loads it, once, when it is first needed."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib

from . import abi
from .abi import Reason, Result
from .errors import ArcommError, last_error

_NAME = "libarclient.so.0"


@functools.cache
def load() -> ctypes.CDLL:
    """The library of $ARCOMM_LIBRARY, else the one in this package, else the system's.

    Raises ArcommError (Unavailable) where there is none, and (reason Version) where it is older than this package.
    """
    named = os.environ.get("ARCOMM_LIBRARY")
    beside = pathlib.Path(__file__).parent / _NAME
    path = named or (str(beside) if beside.exists() else _NAME)
    try:
        # Not PyDLL: every call lets go of the interpreter's lock, since most may wait.
        library = ctypes.CDLL(path)
    except OSError as failure:
        raise ArcommError(
            f"libarclient cannot be loaded: {failure}; install arcommd, or name the file in $ARCOMM_LIBRARY",
            Result.Unavailable,
            Reason.Unsupported,
        ) from None
    for name, (result, arguments) in abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ArcommError(
                f"{path} has no {name}: it is older than this package; install both of one version",
                Result.FailedPrecondition,
                Reason.Version,
            ) from None
        function.restype = result
        function.argtypes = arguments
    return library


def check(result: int) -> None:
    """Raises what this thread's last call failed with, unless it did not."""
    if result != Result.Success:
        raise last_error(load(), result)


def milliseconds(timeout: float | None) -> int:
    """Of a timeout in seconds, rounded up; 0, the library's default, for None."""
    if timeout is None:
        return 0
    if not timeout > 0:
        raise ArcommError(f"timeout is {timeout}: it is a number of seconds above 0, or None for the default")
    return min(int(timeout * 1000) + 1, 2**63)
