#!/usr/bin/env python3
"""PyTorch's symmetric memory as a peer of the benchmark: one_shot_all_reduce and two_shot_all_reduce_ in bfloat16,
ten of them in a CUDA graph, a process per GPU. No daemon and no library of ours takes part.

  torch_peer.py --rank R --ranks N --id-file PATH [--sizes 1k,64m,...] [--json FILE]

Each batch is measured with CUDA events on every rank; a row holds the 50th and the 99th percentile, over batches, of
the slowest rank's microseconds per operation. One sum per size and kind is held to torch.distributed first. Rank 0
writes FILE. A PyTorch without these operations is no failure: it is said, and FILE has no rows.
"""
import argparse
import datetime
import faulthandler
import json
import math
import os
import sys

# No multicast: as in the runs that this one is put beside. Read when the libraries load.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

SIZES = "1k,16k,64k,256k,1m,4m,16m,64m,256m,1g"
CHAIN = 10  # operations in a graph
PATIENCE_S = 60
LIMIT_S = 110


def bytes_from(text):
    scale = {"k": 10, "m": 20, "g": 30}.get(text[-1].lower())
    return int(text) if scale is None else int(text[:-1]) << scale


def batches_of(size):
    """How many, and of how many operations each: whole graphs, a few seconds in all."""
    if size <= 1 << 20:
        return 101, 10 * CHAIN
    if size <= 16 << 20:
        return 51, 2 * CHAIN
    return (31 if size <= 64 << 20 else 11), CHAIN


def percentile(values, part):
    """Nearest rank: of fewer than 100, the 99th percentile is the worst."""
    return sorted(values)[max(math.ceil(part * len(values)), 1) - 1]


def why_not(ranks):
    """What is missing here, in words; None where nothing is."""
    try:
        import torch
        import torch.distributed._symmetric_memory  # noqa: F401
    except ImportError as why:
        return f"no PyTorch with symmetric memory: {why}"
    lacking = [name for name in ("one_shot_all_reduce", "two_shot_all_reduce_") if not hasattr(torch.ops.symm_mem, name)]
    if lacking:
        return f"PyTorch {torch.__version__} lacks torch.ops.symm_mem.{' and '.join(lacking)}"
    if torch.cuda.device_count() < ranks:
        return f"PyTorch sees {torch.cuda.device_count()} GPUs of {ranks}"
    return None


class Peer:
    """The memory of this rank, and what is done with its first bytes."""

    def __init__(self, options, most):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        self.torch, self.dist = torch, dist
        torch.cuda.set_device(options.rank)
        self.device = torch.device("cuda", options.rank)
        dist.init_process_group("nccl", store=dist.FileStore(options.id_file, options.ranks), rank=options.rank,
                                world_size=options.ranks, timeout=datetime.timedelta(seconds=PATIENCE_S),
                                device_id=self.device)
        self.memory = symm_mem.empty(most // 2, dtype=torch.bfloat16, device=self.device)
        symm_mem.rendezvous(self.memory, dist.group.WORLD)
        group = dist.group.WORLD.group_name
        self.kinds = {"one_shot": lambda t: torch.ops.symm_mem.one_shot_all_reduce(t, "sum", group),
                      "two_shot": lambda t: torch.ops.symm_mem.two_shot_all_reduce_(t, "sum", group)}
        self.random = torch.Generator(device=self.device).manual_seed(1000 + options.rank)

    def meet(self):
        self.torch.cuda.synchronize()
        self.dist.barrier()

    def slowest(self, values):
        """Of the ranks, for each of the values."""
        agreed = self.torch.tensor(values, dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(agreed, op=self.dist.ReduceOp.MAX)
        return agreed.tolist()

    def check(self, name, part):
        """One sum of integers that bfloat16 holds exactly. Why there is none, if it is refused on all ranks."""
        part.copy_(self.torch.randint(-2, 2, part.shape, generator=self.random, device=self.device, dtype=part.dtype))
        expected = part.clone()
        self.dist.all_reduce(expected)
        self.meet()
        refused = None
        try:
            result = self.kinds[name](part)
        except (RuntimeError, NotImplementedError) as why:
            refused = str(why).splitlines()[0]
        if self.slowest([0.0 if refused is None else 1.0])[0] > 0:
            return refused or "another rank refused"
        if not self.torch.equal(result, expected):
            raise RuntimeError(f"{name} of {part.numel()} elements is not what torch.distributed gets")
        return None

    def time(self, name, part):
        torch, kind = self.torch, self.kinds[name]
        batches, operations = batches_of(part.numel() * 2)
        self.meet()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(CHAIN):
                kind(part)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        fresh = torch.randn(part.shape, generator=self.random, device=self.device, dtype=part.dtype)
        times = []
        for batch in range(batches + 1):
            part.copy_(fresh)  # two-shot sums in place: its values grow
            self.meet()
            graph.replay()  # the GPUs begin together
            begin.record()
            for _ in range(operations // CHAIN):
                graph.replay()
            end.record()
            end.synchronize()
            if batch > 0:
                times.append(begin.elapsed_time(end) * 1e3 / operations)
        del graph
        times = self.slowest(times)
        return {"p50_us": round(percentile(times, 0.5), 3), "p99_us": round(percentile(times, 0.99), 3),
                "batches": batches, "operations": operations}

    def row(self, size):
        part = self.memory[:size // 2]
        row = {"bytes": size, "ranks": self.dist.get_world_size(), "dtype": "bfloat16"}
        for name in self.kinds:
            refused = self.check(name, part)
            row[name] = None if refused else self.time(name, part)
            if refused:
                row[name + "_why"] = refused
            self.torch.cuda.empty_cache()
        return row


def save(options, rows):
    if options.rank == 0 and options.json:
        with open(options.json, "w") as file:
            file.write("[" + ",\n ".join(json.dumps(row) for row in rows) + "]\n")


def run(options):
    sizes = [bytes_from(size) for size in options.sizes.split(",")]
    peer = Peer(options, max(sizes))
    rows = []
    for size in sizes:
        rows.append(peer.row(size))
        if options.rank == 0:
            print(json.dumps(rows[-1]), flush=True)
    save(options, rows)
    peer.meet()
    return f"PyTorch {peer.torch.__version__}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--id-file", required=True)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    missing = why_not(options.ranks)
    if missing:
        save(options, [])
        print(f"rank {options.rank}: not measured: {missing}", flush=True)
        return 0
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)  # says where it hung
    try:
        what = run(options)
    except Exception as why:  # the process group may hang in its own end
        print(f"rank {options.rank}: FAILED: {type(why).__name__}: {why}", flush=True)
        os._exit(1)
    print(f"rank {options.rank} of {options.ranks}: symmetric memory of {what} was measured", flush=True)
    sys.stdout.flush()
    os._exit(0)  # all ranks are done; taking NCCL down is no part of it


if __name__ == "__main__":
    sys.exit(main())
