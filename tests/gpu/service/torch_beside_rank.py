#!/usr/bin/env python3
"""A PyTorch process, one per GPU: what AllReduces lose beside others, and what the caller's own kernels lose beside them.

  torch_beside_rank.py --rank R --ranks N --id-file PATH [--json PATH]

Of arcommd's backend and of NCCL's, two communicators each, float16, everything in CUDA graphs: microseconds of an
AllReduce alone, beside those of a second communicator on another stream, and beside matrix products of bfloat16 on
another stream; and by how much the products take longer. What is beside lasts three times as long as what is timed.
Sums are checked. Rank 0 prints the table; exit code 1 where anything is wrong.
"""
import argparse
import datetime
import faulthandler
import json
import os
import statistics
import sys
import traceback
from pathlib import Path

os.environ.setdefault("ARCOMM_DEVICE", "gpu")

import torch
import torch.distributed as dist

import arcomm.torch_backend

PATIENCE_S = 60
SIZES = [64 << 10, 1 << 20, 16 << 20, 64 << 20]
SIDE = 4096  # of the matrices
TIMED_US = 20_000.0
REPEATS = 5


def human(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


class Work:
    """A graph of some operations, on a stream of its own."""

    def __init__(self, count, once):
        self.count, self.stream, self.graph = count, torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                once()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream):
            for _ in range(count):
                once()
        self.alone_us = self.timed(20)
        self.alone_us = self.timed(self.replays(TIMED_US))

    def replays(self, microseconds):
        return max(1, round(microseconds / (self.alone_us * self.count)))

    def play(self, replays):
        with torch.cuda.stream(self.stream):
            for _ in range(replays):
                self.graph.replay()

    def timed(self, replays, beside=None):
        """Microseconds of one operation, the median of some runs and the slowest rank's."""
        taken = []
        for _ in range(REPEATS):
            torch.cuda.synchronize()
            dist.barrier(group=meeting)
            begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if beside is not None:
                beside.play(beside.replays(3 * TIMED_US))
            begun.record(self.stream)
            self.play(replays)
            ended.record(self.stream)
            torch.cuda.synchronize()
            taken.append(begun.elapsed_time(ended) * 1000 / (replays * self.count))
        slowest = torch.tensor([statistics.median(taken)])
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=meeting)
        return slowest.item()

    def beside(self, other):
        return self.timed(self.replays(TIMED_US), other)


def reduced(group, size, rank, ranks):
    """The work of AllReduces of a group, whose results are looked at."""
    x = torch.full((size // 2,), float(rank + 1), dtype=torch.float16, device="cuda")
    y = torch.full_like(x, -1.0)
    dist.all_reduce(y.copy_(x), group=group)
    torch.cuda.synchronize()
    if not torch.all(y == ranks * (ranks + 1) / 2):
        raise RuntimeError(f"{human(size)}: a wrong sum")
    z = torch.zeros_like(x)  # in place, again and again
    return Work(20 if size <= 1 << 20 else 4, lambda: dist.all_reduce(z, group=group))


def figures(options):
    torch.cuda.set_device(options.rank)
    arcomm.torch_backend.register()
    device = torch.device("cuda", options.rank)
    dist.init_process_group("arcomm", store=dist.FileStore(options.id_file + ".store", options.ranks), rank=options.rank,
                            world_size=options.ranks, timeout=datetime.timedelta(seconds=PATIENCE_S), device_id=device)
    everybody = list(range(options.ranks))
    global meeting
    meeting = dist.new_group(everybody, backend="gloo")
    groups = {"arcomm": (None, dist.new_group(everybody)),
              "nccl": tuple(dist.new_group(everybody, backend="nccl") for _ in range(2))}
    a = torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda")
    b, c = torch.randn_like(a), torch.empty_like(a)
    products = Work(10, lambda: torch.matmul(a, b, out=c))
    rows = []
    for size in SIZES:
        for system, (first, second) in groups.items():
            one, two = (reduced(group, size, options.rank, options.ranks) for group in (first, second))
            rows.append({"bytes": size, "system": system, "alone_us": one.alone_us, "second_alone_us": two.alone_us,
                         "beside_second_us": one.beside(two), "beside_products_us": one.beside(products),
                         "products_alone_us": products.alone_us, "products_beside_us": products.beside(one)})
    if options.rank == 0:
        print(f"AllReduce of float16 between {options.ranks} GPUs, us (times as long as alone); products of {SIDE} x {SIDE} "
              f"matrices of bfloat16 take {products.alone_us:.0f} us alone")
        print(f"{'bytes':>8} {'':8} {'alone':>8} {'beside another':>18} {'beside products':>18} {'products beside it':>20}")
        for row in rows:
            with_times = [f"{row[key]:.1f} ({row[key] / row[alone]:.2f})" for key, alone in
                          (("beside_second_us", "alone_us"), ("beside_products_us", "alone_us"),
                           ("products_beside_us", "products_alone_us"))]
            print(f"{human(row['bytes']):>8} {row['system']:8} {row['alone_us']:8.1f} {with_times[0]:>18} {with_times[1]:>18} "
                  f"{with_times[2]:>20}")
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    sys.stdout.flush()
    dist.barrier(group=meeting)
    os._exit(0)  # graphs of NCCL's operations live on


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--id-file", required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(100, exit=True)  # says where it hung
    try:
        figures(options)
    except Exception as why:  # one line is all that the caller shows; the process group may hang in its own end
        traceback.print_exc()
        print(f"rank {options.rank}: FAILED: {type(why).__name__}: {why}", flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
