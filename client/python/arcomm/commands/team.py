"""A process for each rank of a communicator on this node."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .. import session
from ..communicator import unique_id
from ..errors import ArcommError


def on_ranks(ranks: int, work: Callable[..., Any], timeout: float, *arguments: Any) -> list[Any]:
    """What work(rank, ranks, unique id, *arguments) comes to on each. Raises the first failure; no process is left."""
    context = multiprocessing.get_context("spawn")
    identity = unique_id()
    ends = [context.Pipe(duplex=False) for _ in range(ranks)]
    processes = [
        context.Process(target=_rank, args=(ends[rank][1], work, timeout, rank, ranks, identity, *arguments), daemon=True)
        for rank in range(ranks)
    ]
    for process, (_, theirs) in zip(processes, ends):
        process.start()
        theirs.close()
    try:
        return _answers([ours for ours, _ in ends], time.monotonic() + timeout, timeout)
    finally:
        for process in processes:
            process.join(1)
            if process.is_alive():
                process.kill()


def _answers(ends: list[Any], end: float, timeout: float) -> list[Any]:
    answers: dict[int, Any] = {}
    while len(answers) < len(ends):
        open_ends = [each for rank, each in enumerate(ends) if rank not in answers]
        ready = multiprocessing.connection.wait(open_ends, max(end - time.monotonic(), 0))
        if not ready:
            missing = [str(rank) for rank in range(len(ends)) if rank not in answers]
            raise ArcommError(
                f"no word of rank {', '.join(missing)} after {timeout:g} s: it was ended; --timeout gives it more"
            )
        for each in ready:
            rank = ends.index(each)
            try:
                worked, answers[rank] = each.recv()
            except EOFError:
                raise ArcommError(f"the process of rank {rank} died; what it said is above") from None
            if not worked:
                raise answers[rank]
    return [answers[rank] for rank in range(len(ends))]


def _rank(told: Any, work: Callable[..., Any], timeout: float, rank: int, ranks: int, *arguments: Any) -> None:
    try:
        answer = (True, work(rank, ranks, *arguments))
    except ArcommError as failure:
        answer = (False, failure)
    except Exception as failure:  # noqa: BLE001
        answer = (False, ArcommError(f"rank {rank}: {type(failure).__name__}: {failure}"))
    told.send(answer)
    told.close()
    sys.stdout.flush()
    os._exit(0)  # whatever else of this process would wait for ranks that have failed


def attach(device: str, timeout: float) -> None:
    """This process, to "host" or "gpu", in the folder that the environment names."""
    named = os.environ.get("ARCOMM_DEVICE", "")
    fits = named.lower().startswith(device)
    session.init(named if fits else {"host": "host:0", "gpu": "gpu"}[device], timeout=timeout)
