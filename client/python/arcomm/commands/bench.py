"""python -m arcomm bench: times of AllReduces from Python, with the columns of `arctl bench`, and torch.distributed's own
backend by the same ranks."""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ..arrays import data_type, size_of
from ..communicator import Communicator
from ..errors import ArcommError
from ..memory import empty
from .team import attach, on_ranks

_ROUNDS = 21


def run(options: argparse.Namespace) -> int:
    device = options.device or "host"
    has_torch = importlib.util.find_spec("torch") is not None
    if device == "gpu" and not has_torch:
        raise ArcommError("on GPUs this needs torch (pip install torch); `arctl bench --device gpu` does not")
    if device == "host" and importlib.util.find_spec("numpy") is None:
        raise ArcommError("on the host this needs numpy (pip install numpy); `arctl bench` does not")
    peer = None if options.no_peer or not has_torch else "gloo" if device == "host" else "nccl"
    print(f"# all_reduce, {options.ranks} ranks, {device}, called from Python; time: median over rounds of the slowest rank"
          + (f"; {peer}: torch.distributed's, by the same ranks" if peer else ""))  # fmt: skip
    titles = ("size", "count", "type", "redop", "place", "time us", "p99 us", "algbw", "busbw", "#wrong")
    print("".join(f"{title:>11}" for title in titles) + (f"{peer + ' us':>11}{'times':>9}" if peer else ""))
    print(f"{'(B)':>11}{'(elements)':>11}{'':>55}{'(GB/s)':>11}{'(GB/s)':>11}")
    with tempfile.TemporaryDirectory(prefix="arcomm") as folder:
        answers = on_ranks(options.ranks, _times, options.timeout, device, options.sizes, options.dtype, peer,
                           os.path.join(folder, "store"), options.timeout)  # fmt: skip
    wrong = 0
    for size, of_ranks in zip(options.sizes, zip(*answers)):
        count = max(size // size_of(data_type(options.dtype)), 1)
        size = count * size_of(data_type(options.dtype))
        ours = [max(times) for times in zip(*(each[0] for each in of_ranks))]
        theirs = [max(times) for times in zip(*(each[1] for each in of_ranks))]
        bad = sum(each[2] for each in of_ranks)
        wrong += bad
        time_us = statistics.median(ours)
        bandwidth = size / time_us / 1e3
        bus = bandwidth * 2 * (options.ranks - 1) / options.ranks
        line = f"{size:>11}{count:>11}{options.dtype:>11}{'sum':>11}{'in':>11}{time_us:>11.2f}{max(ours):>11.2f}"
        line += f"{bandwidth:>11.2f}{bus:>11.2f}{bad:>11}"
        if theirs:
            line += f"{statistics.median(theirs):>11.2f}{statistics.median(theirs) / time_us:>9.2f}"
        print(line)
    if wrong:
        print(f"FAILED: {wrong} elements are wrong: please report it")
    return 1 if wrong else 0


_Figures = tuple[list[float], list[float], int]


def _times(rank: int, ranks: int, identity: bytes, device: str, sizes: list[int], dtype: str, peer: str | None, store: str,
           timeout: float) -> list[_Figures]:  # fmt: skip
    """For each size the rounds of ours, of the peer's, in microseconds, and how many elements are wrong."""
    wait: Callable[[], None] = lambda: None  # noqa: E731
    if device == "gpu":
        import torch

        if torch.cuda.device_count() < ranks:
            raise ArcommError(f"there are {torch.cuda.device_count()} GPUs and {ranks} ranks: each needs one of its own")
        torch.cuda.set_device(rank)
        torch.empty(1, device="cuda")
        wait = torch.cuda.synchronize
    attach(device, timeout)
    distributed = _peer(peer, store, rank, ranks) if peer else None
    figures = []
    with Communicator(identity, rank, ranks) as communicator:
        for size in sizes:
            count = max(size // size_of(data_type(dtype)), 1)
            x, read = _memory(device, count, dtype, rank)
            communicator.all_reduce(x)
            wait()
            wrong = sum(value != ranks * (ranks + 1) // 2 for value in read())
            x[:] = 0
            meet = empty(1, "float32") if device == "host" else x[:1]
            ours = _rounds(lambda x=x: communicator.all_reduce(x), wait, lambda meet=meet: communicator.all_reduce(meet))
            theirs: list[float] = []
            if distributed is not None:
                y = _tensor(x)
                if y is not None:
                    theirs = _rounds(lambda y=y: distributed.all_reduce(y), wait, lambda m=meet: communicator.all_reduce(m))
            figures.append((ours, theirs, wrong))
        wait()
        communicator.check()
    return figures


def _memory(device: str, count: int, dtype: str, rank: int) -> tuple[Any, Callable[[], list[Any]]]:
    """rank + 1 in every element, and what reads them."""
    if device == "gpu":
        import torch

        x = torch.full((count,), rank + 1, dtype=getattr(torch, dtype), device="cuda")
        return x, lambda: x.cpu().tolist()
    if dtype == "bfloat16":
        raise ArcommError("numpy has no bfloat16: name another --dtype on the host")
    y = empty(count, dtype)
    y[:] = rank + 1
    return y, lambda: y.tolist()


def _tensor(x: Any) -> Any:
    import torch

    try:
        return x if isinstance(x, torch.Tensor) else torch.from_numpy(x)
    except TypeError:  # a type that torch has not
        return None


def _peer(name: str, store: str, rank: int, ranks: int) -> Any:
    import torch.distributed as distributed

    distributed.init_process_group(name, store=distributed.FileStore(store, ranks), rank=rank, world_size=ranks)
    return distributed


def _rounds(call: Callable[[], Any], wait: Callable[[], None], meet: Callable[[], Any]) -> list[float]:
    """Microseconds of one call in each round.."""
    for _ in range(3):
        call()
    wait()
    times = []
    calls = 20
    for _ in range(_ROUNDS):
        meet()
        wait()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        times.append((time.perf_counter() - began) / calls * 1e6)
    return times
