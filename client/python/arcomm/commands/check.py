"""python -m arcomm check: a line for each thing that must work, and what to do where it does not."""

from __future__ import annotations

import argparse
import array
import os

from .. import abi, session
from ..communicator import Communicator
from ..errors import ArcommError
from ..library import load
from ..memory import empty
from .driver import Driver
from .team import attach, on_ranks

_TYPES = {"float32": "f", "float64": "d", "int8": "b", "uint8": "B", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q"}
_COUNTS = (1, 1000, 262145)


def run(options: argparse.Namespace) -> int:
    """0 where a device has been tested and everything that was is well."""
    library = load()
    mine = f"{abi.VERSION // 10000}.{abi.VERSION // 100 % 100}.{abi.VERSION % 100}"
    _say("library", f"{library._name}, version {session.version()}; this package is of {mine}")
    _say("daemon", f"looked for in {os.environ.get('ARCOMM_RUNTIME_DIR') or '/run/arcommd'}")
    well, tested = True, 0
    for device in (options.device,) if options.device else ("host", "gpu"):
        try:
            ranks = options.ranks if device == "host" else min(options.ranks, *_gpus(options))
            on_ranks(1, _attaches, options.timeout, device, options.timeout)
        except ArcommError as failure:
            # A daemon serves one of the two, as a rule.
            well = well and options.device is None
            _say(device, f"{'not tested' if options.device is None else 'FAILED'}: {failure}")
            continue
        tested += 1
        try:
            done, names = zip(*on_ranks(ranks, _sums, options.timeout, device, options.timeout))
            what = " and ".join(dict.fromkeys(filter(None, names)))
            between = f"between {ranks} processes" if ranks > 1 else "of one process, since there is one GPU"
            _say(device, f"{done[0]} sums {between}{f' on {what}' if what else ''} are right")
        except ArcommError as failure:
            well = False
            _say(device, f"FAILED: {failure}")
    if tested == 0:
        print("FAILED: no device was tested: start arcommd (systemctl start arcommd), or name its folder in $ARCOMM_RUNTIME_DIR")
    elif well:
        print("all is well")
    return 0 if well and tested > 0 else 1


def _gpus(options: argparse.Namespace) -> tuple[int, ...]:
    """How many there are, once they have been asked for in a process of their own: CUDA survives no fork."""
    (count,) = on_ranks(1, _count_gpus, options.timeout)
    if count == 0:
        raise ArcommError("there is no GPU, or CUDA_VISIBLE_DEVICES hides it")
    return (count,)


def _count_gpus(_rank: int, _ranks: int, _identity: bytes) -> int:
    return Driver().gpus()


def _attaches(_rank: int, _ranks: int, _identity: bytes, device: str, timeout: float) -> None:
    attach(device, timeout)


def _sums(rank: int, ranks: int, identity: bytes, device: str, timeout: float) -> tuple[int, str]:
    """How many, and the GPU's name."""
    driver, name = None, ""
    if device == "gpu":
        driver = Driver()
        name = driver.use(rank)
    attach(device, timeout)
    done = 0
    with Communicator(identity, rank, ranks) as communicator:
        for dtype, letter in _TYPES.items():
            for count in _COUNTS:
                made = array.array(letter, [(each + rank) % 7 for each in range(count)])
                expected = array.array(letter, [sum((each + other) % 7 for other in range(ranks)) for each in range(count)])
                if driver is None:
                    communicator.all_reduce(made)
                else:
                    x = empty(count, dtype)
                    address = x.__cuda_array_interface__["data"][0]
                    driver.write(address, made.tobytes())
                    communicator.all_reduce(x)
                    made = array.array(letter, driver.read(address, len(made) * made.itemsize))
                    communicator.check()
                wrong = sum(got != right for got, right in zip(made, expected))
                if wrong:
                    raise ArcommError(f"rank {rank}: {wrong} of {count} elements of {dtype} are wrong: please report it")
                done += 1
    return done, name


def _say(what: str, how: str) -> None:
    print(f"{what:<8} {how}", flush=True)
