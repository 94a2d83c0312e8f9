"""What AllReduces of the backend "arcomm" and of NCCL's lose beside others, and what the caller's own kernels lose
beside them: float16, two communicators of each, everything in CUDA graphs; and one of "arcomm" that may fill some SMs only
(most_sms). What is beside lasts three times as long as what is timed. Sums are checked."""
import json
import statistics

import torch
import torch.distributed as dist

from arcomm.torch_backend import Options

SIZES = [64 << 10, 1 << 20, 16 << 20, 64 << 20]
MOST_SMS = [8, 16, 24]  # as the second communicator, whose share is 25 at most
SIDE = 4096  # of the matrices
TIMED_US = 20_000.0
REPEATS = 5


def human(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


class Work:
    """A graph of some operations, on a stream of its own. meeting: a group of all ranks on the host."""

    def __init__(self, meeting, count, once):
        self.meeting, self.count = meeting, count
        self.stream, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
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
            dist.barrier(group=self.meeting)
            begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if beside is not None:
                beside.play(beside.replays(3 * TIMED_US))
            begun.record(self.stream)
            self.play(replays)
            ended.record(self.stream)
            torch.cuda.synchronize()
            taken.append(begun.elapsed_time(ended) * 1000 / (replays * self.count))
        slowest = torch.tensor([statistics.median(taken)])
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=self.meeting)
        return slowest.item()

    def beside(self, other):
        return self.timed(self.replays(TIMED_US), other)


def reduced(meeting, group, size, rank, ranks):
    """The work of AllReduces of a group, whose results are looked at."""
    exact = torch.zeros(size // 2, device="cuda")
    for other in range(ranks):
        torch.manual_seed(size + other)
        part = torch.randn(size // 2, device="cuda").to(torch.float16)
        exact += part
        if other == rank:
            y = part
    dist.all_reduce(y, group=group)
    torch.cuda.synchronize()
    # Two addends have one sum; more may be added in another order.
    off = 0 if ranks == 2 else 0.01
    if not torch.allclose(y.float(), exact.to(torch.float16).float(), rtol=off, atol=off):
        raise RuntimeError(f"{human(size)}: a wrong sum")
    z = torch.zeros_like(y)  # in place, again and again
    return Work(meeting, 20 if size <= 1 << 20 else 4, lambda: dist.all_reduce(z, group=group))


def beside_figures(rank, ranks, file):
    """Prints the table on rank 0, and writes it to `file` where there is one."""
    everybody = list(range(ranks))
    meeting = dist.new_group(everybody, backend="gloo")
    a = torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda")
    b, c = torch.randn_like(a), torch.empty_like(a)
    products = Work(meeting, 10, lambda: torch.matmul(a, b, out=c))
    rows = []
    for most_sms in MOST_SMS:  # before an unbound one takes the share that each of these has in its turn
        group = dist.new_group(everybody, pg_options=Options(most_sms=most_sms))
        for size in SIZES:
            one = reduced(meeting, group, size, rank, ranks)
            rows.append({"bytes": size, "system": f"arcomm, {most_sms}", "most_sms": most_sms, "alone_us": one.alone_us,
                         "beside_products_us": one.beside(products), "products_alone_us": products.alone_us,
                         "products_beside_us": products.beside(one)})
            del one
        dist.destroy_process_group(group)
    groups = {"arcomm": (None, dist.new_group(everybody)),
              "nccl": tuple(dist.new_group(everybody, backend="nccl") for _ in range(2))}
    for size in SIZES:
        for system, (first, second) in groups.items():
            one, two = (reduced(meeting, group, size, rank, ranks) for group in (first, second))
            rows.append({"bytes": size, "system": system, "alone_us": one.alone_us, "second_alone_us": two.alone_us,
                         "beside_second_us": one.beside(two), "beside_products_us": one.beside(products),
                         "products_alone_us": products.alone_us, "products_beside_us": products.beside(one)})
    if rank != 0:
        return
    print(f"AllReduce of float16 between {ranks} GPUs, us (times as long as alone); products of {SIDE} x {SIDE} matrices of "
          f"bfloat16 take {products.alone_us:.0f} us alone")
    rows.sort(key=lambda row: row["bytes"])
    print(f"{'bytes':>8} {'':11} {'alone':>8} {'beside another':>18} {'beside products':>18} {'products beside it':>20}")
    for row in rows:
        with_times = [f"{row[key]:.1f} ({row[key] / row[alone]:.2f})" if key in row else "-" for key, alone in
                      (("beside_second_us", "alone_us"), ("beside_products_us", "alone_us"),
                       ("products_beside_us", "products_alone_us"))]
        print(f"{human(row['bytes']):>8} {row['system']:11} {row['alone_us']:8.1f} {with_times[0]:>18} {with_times[1]:>18} "
              f"{with_times[2]:>20}")
    if file:
        file.write_text(json.dumps(rows, indent=1))
