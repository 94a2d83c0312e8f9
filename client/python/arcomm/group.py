"""Calls of one thread that are made together."""

from __future__ import annotations

import threading
from typing import Any

from .library import check, load


class _Collected(threading.local):
    """What this thread's groups hold. The defaults are the class's, so that a call outside any group finds them fast."""

    depth = 0
    kept: tuple[Any, ...] = ()


_open = _Collected()


class Group:
    """Between its begin and its end the calls of this thread are collected, so that one thread can drive several ranks.

        with arcomm.Group():
            comms = [arcomm.Communicator(unique_id, rank, ranks) for rank in range(ranks)]

    The outermost end makes them, waits for those that block, and raises the first failure. Arrays are neither read nor
    written before.
    """

    def __enter__(self) -> Group:
        check(load().arcGroupStart())
        _open.depth += 1
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        _open.depth = max(_open.depth - 1, 0)
        result = load().arcGroupEnd()
        if _open.depth == 0:
            _open.kept = ()
        if kind is None:  # what was raised inside says more than what came of it
            check(result)


def keep_until_end(*things: Any) -> None:
    """What a collected call still points to when this thread's group ends; no group, nothing is kept."""
    if _open.depth > 0:
        _open.kept += things
