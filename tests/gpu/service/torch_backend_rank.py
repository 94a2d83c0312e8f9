#!/usr/bin/env python3
"""A PyTorch process, one per GPU, whose default process group is "arcomm", held to a group of NCCL's beside it.

  torch_backend_rank.py --rank R --ranks N --id-file PATH [--killed | --abandoned | --figures | --beside [--json PATH]]

Without a word: AllReduces of CUDA tensors over types, operations, streams and graphs, DDP, groups. --killed: the last
rank dies, and the others must hear its name within seconds. --abandoned: it dies, and the others look at nothing any
more: their watchdogs must end them, with status 70. --figures: host time of a call and tokens per second of a
tensor-parallel decoder, ours and NCCL's. --beside: what AllReduces and matrix products take from each other, ours
and NCCL's. Prints lines with the verdict; exit code 1 where anything differs.
"""
import argparse
import datetime
import faulthandler
import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("ARCOMM_DEVICE", "gpu")

import torch
import torch.distributed as dist

import arcomm
import arcomm.torch_backend

from torch_backend_beside import beside_figures
from torch_backend_checks import Checks
from torch_backend_figures import host_figures, serving_figures

PATIENCE_S = 60
HEARD_S = 5


def started(options, device_id=None):
    torch.cuda.set_device(options.rank)
    arcomm.torch_backend.register()
    dist.init_process_group("arcomm", store=dist.FileStore(options.id_file + ".store", options.ranks), rank=options.rank,
                            world_size=options.ranks, timeout=datetime.timedelta(seconds=PATIENCE_S), device_id=device_id)
    return dist.distributed_c10d._get_default_group()


def check(options):
    group = started(options)
    reference = dist.new_group(list(range(options.ranks)), backend="nccl")
    checks = Checks(options.rank, options.ranks, reference)
    checks.expected(torch.ones(1, device="cuda"))
    x = checks.values(100, torch.float32)
    expected = checks.expected(x)
    dist.all_reduce(x)
    if group.communicator is None:
        raise RuntimeError("the group does not use the daemon")
    checks.same(x, expected, "the first")
    for name in options.only or ("types_and_operations", "strided", "coalesced", "streams", "asynchronous", "graphed", "ddp",
                                 "groups", "others"):
        try:
            getattr(checks, name)()
            group.communicator.check()
        except RuntimeError as why:  # the others may be well, and a machine with GPUs is not at hand every day
            traceback.print_exc()
            checks.failed.append(f"{name}: {why}")
    if checks.failed:
        raise RuntimeError("; ".join(checks.failed))
    dist.barrier()
    checks.keep = None
    dist.destroy_process_group()
    print(f"rank {options.rank} of {options.ranks}: {checks.done} results of the backend arcomm in PyTorch "
          f"{torch.__version__} are NCCL's", flush=True)


def killed(options):
    """Status 0 where the dead rank was named in time."""
    os.environ["ARCOMM_TORCH_WATCHDOG"] = "log"
    group = started(options, torch.device("cuda", options.rank))
    x = torch.ones(1000, device="cuda")
    for _ in range(10):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    if options.rank == options.ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    before = time.monotonic()
    try:
        while time.monotonic() - before < PATIENCE_S:
            dist.all_reduce(x)
            torch.cuda.synchronize()
            group.communicator.check()
        raise RuntimeError("nobody said so")
    except arcomm.ArcommError as failure:
        seconds = time.monotonic() - before
        if failure.rank != options.ranks - 1 or seconds > HEARD_S:
            raise RuntimeError(f"after {seconds:.1f} s: {failure} (rank {failure.rank})") from None
        print(f"rank {options.rank}: heard after {seconds:.2f} s: {failure}", flush=True)
    os._exit(0)


def abandoned(options):
    """Does not return: the watchdog ends the process. Status 1 where it does not."""
    started(options, torch.device("cuda", options.rank))
    x = torch.ones(1000, device="cuda")
    for _ in range(10):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    if options.rank == options.ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"rank {options.rank}: waits for its watchdog", flush=True)
    time.sleep(PATIENCE_S / 2)
    raise RuntimeError("the watchdog did not end this process")


def figures(options):
    group = started(options, torch.device("cuda", options.rank))
    reference = dist.new_group(list(range(options.ranks)), backend="nccl")
    dist.all_reduce(torch.ones(1, device="cuda"), group=reference)
    host_figures(group, reference, options.rank)
    serving_figures(group, reference, options.rank, options.ranks)
    leave()


def beside(options):
    started(options, torch.device("cuda", options.rank))
    beside_figures(options.rank, options.ranks, options.json)
    leave()


def leave():
    """Does not return: graphs of NCCL's operations live on."""
    dist.barrier()
    torch.cuda.synchronize()
    sys.stdout.flush()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--id-file", required=True)
    parser.add_argument("--killed", action="store_true")
    parser.add_argument("--abandoned", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", help="checks by their names")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    faulthandler.dump_traceback_later(100, exit=True)  # says where it hung
    try:
        (killed if options.killed else abandoned if options.abandoned else figures if options.figures
         else beside if options.beside else check)(options)
    except Exception as why:  # one line is all that the caller shows; the process group may hang in its own end
        traceback.print_exc()
        print(f"rank {options.rank}: FAILED: {type(why).__name__}: {why}", flush=True)
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
