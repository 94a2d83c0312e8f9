#!/usr/bin/env python3
"""A PyTorch process, one per GPU, whose default process group is "arcomm", held to a group of NCCL's beside it.

  torch_backend_rank.py --rank R --ranks N --id-file PATH [--killed | --figures]

Without a word: AllReduces of CUDA tensors over types, operations, streams and graphs, DDP, groups. --killed: the last
rank dies, and the others must hear its name within seconds. --figures: host time of a call and tokens per second of a
tensor-parallel decoder, ours and NCCL's. Prints lines with the verdict; exit code 1 where anything differs.
"""
import argparse
import datetime
import faulthandler
import logging
import os
import signal
import statistics
import sys
import time
import traceback

os.environ.setdefault("ARCOMM_DEVICE", "gpu")

import torch
import torch.distributed as dist

import arcomm
import arcomm.torch_backend
from arcomm.library import load

PATIENCE_S = 60
HEARD_S = 5


def started(options, device_id=None):
    torch.cuda.set_device(options.rank)
    arcomm.torch_backend.register()
    dist.init_process_group("arcomm", store=dist.FileStore(options.id_file + ".store", options.ranks), rank=options.rank,
                            world_size=options.ranks, timeout=datetime.timedelta(seconds=PATIENCE_S), device_id=device_id)
    return dist.distributed_c10d._get_default_group()


class Checks:
    def __init__(self, rank, ranks, reference):
        self.rank, self.ranks, self.reference = rank, ranks, reference
        self.random = torch.Generator(device="cuda").manual_seed(1000 + rank)
        self.done = 0
        self.failed = []

    def values(self, count, dtype):
        """Small integers, whose results every type holds exactly."""
        if dtype is torch.bool:
            return torch.randint(0, 2, (count,), generator=self.random, device="cuda").bool()
        return torch.randint(1, 4, (count,), generator=self.random, device="cuda").to(dtype)

    def expected(self, x, op=dist.ReduceOp.SUM):
        y = x.clone()
        dist.all_reduce(y, op=op, group=self.reference)
        torch.cuda.synchronize()
        return y

    def same(self, got, expected, what):
        torch.cuda.synchronize()
        if not torch.equal(got, expected):
            raise RuntimeError(f"{what}: differs from NCCL's in {(got != expected).sum().item()} of {got.numel()}")
        self.done += 1

    def types_and_operations(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32,
                      torch.int64, torch.bool):
            for name in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
                if name == "AVG" and not dtype.is_floating_point:
                    continue
                for count in (1, 1000, 131073):
                    for is_async in (False, True):
                        x = self.values(count, dtype)
                        op = getattr(dist.ReduceOp, name)
                        expected = self.expected(x, op)
                        work = dist.all_reduce(x, op=op, async_op=is_async)
                        if is_async:
                            work.wait()
                        self.same(x, expected, f"{name} of {count} {dtype}, async_op={is_async}")
        if hasattr(dist, "_make_nccl_premul_sum"):
            x = self.values(1000, torch.float32)
            expected = self.expected(x, dist._make_nccl_premul_sum(0.5))
            dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
            self.same(x, expected, "a sum of what was multiplied before")
        x = self.values(8 << 20, torch.bfloat16)
        expected = self.expected(x)
        dist.all_reduce(x)
        self.same(x, expected, "16 MB")

    def strided(self):
        x = self.values(64 * 48, torch.float32).view(64, 48)
        expected = self.expected(x[:, 1:7].contiguous())
        dist.all_reduce(x[:, 1:7])
        self.same(x[:, 1:7], expected, "not contiguous")

    def coalesced(self):
        tensors = [self.values(count, torch.float32) for count in (3, 1000, 70000)]
        expected = [self.expected(x) for x in tensors]
        with dist._coalescing_manager():
            for x in tensors:
                dist.all_reduce(x)
        for x, y in zip(tensors, expected):
            self.same(x, y, "coalesced")

    def streams(self):
        """Work before and behind on the same stream, on others, and beside it, with nothing in between that waits."""
        others = [torch.cuda.Stream() for _ in range(3)]
        for turn in range(20):
            x = self.values(50000, torch.float32)
            expected = self.expected(x * 2 + 1) - 3
            torch.cuda.synchronize()
            other = others[turn % 3]
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                torch.cuda._sleep(1000000)
                y = x * 2 + 1
                work = dist.all_reduce(y, async_op=turn % 2 == 1)
                if work is not None:
                    work.wait()
                y -= 3
            self.same(y, expected, f"on another stream, turn {turn}")
        works, tensors, expected = [], [], []
        for turn in range(10):
            x = self.values(20000 + turn, torch.float32)
            expected.append(self.expected(x))
            tensors.append(x)
        for turn, x in enumerate(tensors):
            works.append(dist.all_reduce(x, async_op=turn % 3 != 0))
        for work in works:
            if work is not None:
                work.wait()
        for x, y in zip(tensors, expected):
            self.same(x, y, "many in flight, on two streams")

    def asynchronous(self):
        """wait() keeps the stream and not the host; a future's callback runs behind the sum, not before."""
        x = self.values(1000, torch.float32)
        expected = self.expected(x)
        torch.cuda._sleep(400_000_000)  # some 200 ms
        before = time.monotonic()
        work = dist.all_reduce(x, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        work.wait()
        y = x + 1
        z = doubled.wait()
        seconds = time.monotonic() - before
        if work.is_completed() or seconds > 0.1:
            raise RuntimeError(f"the host waited for {seconds} s")
        self.same(y, expected + 1, "behind wait()")
        self.same(z, expected * 2, "a future's callback")
        if not work.is_completed():
            raise RuntimeError("it has ended, and is_completed() says otherwise")
        if not dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=10)):
            raise RuntimeError("wait with a timeout")

    def graphed(self):
        for count in (1000, 131072, 2 << 20):
            source = self.values(count, torch.bfloat16)
            warm = source.clone()
            dist.all_reduce(warm)
            dist.all_reduce(warm, async_op=True).wait()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                first = source * 2
                dist.all_reduce(first)
                second = first + 1
                work = dist.all_reduce(second, async_op=True)
                third = source - 1  # beside it
                dist.all_reduce(third)
                work.wait()
                result = second + third
            for _ in range(4):
                source.copy_(torch.randint(-1, 2, (count,), generator=self.random, device="cuda"))
                expected = self.expected(self.expected(source * 2) + 1) + self.expected(source - 1)
                graph.replay()
                self.same(result, expected, f"in a graph, {count}")
            dist.all_reduce(warm)  # eagerly again
            torch.cuda.synchronize()
            self.keep = getattr(self, "keep", []) + [graph, source, result]

    def ddp(self):
        def trained(group):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
            parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=1)
            optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
            torch.manual_seed(2 + self.rank)
            for _ in range(5):
                optimizer.zero_grad()
                parallel(torch.randn(32, 256, device="cuda")).square().mean().backward()
                optimizer.step()
            return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        ours, theirs = trained(None), trained(self.reference)
        torch.cuda.synchronize()
        if self.ranks == 2:
            self.same(ours, theirs, "a model that DDP trained")
        else:
            torch.testing.assert_close(ours, theirs)

    def groups(self):
        alone = [dist.new_group([each]) for each in range(self.ranks)][self.rank]
        together = dist.new_group(list(range(self.ranks)), group_desc="all of them")
        x = self.values(1000, torch.float32)
        y = x.clone()
        dist.all_reduce(y, group=alone)
        self.same(y, x, "a group of one")
        expected = self.expected(x)
        dist.all_reduce(x, group=together)
        self.same(x, expected, "a group of all")
        if together.communicator is None or together.group_desc != "all of them":
            raise RuntimeError("the new group has no communicator, or not its description")

    def others(self):
        x = torch.full((1000,), float(self.rank), device="cuda")
        dist.broadcast(x, self.ranks - 1)
        self.same(x, torch.full_like(x, self.ranks - 1.0), "broadcast")
        gathered = torch.empty(self.ranks, device="cuda")
        dist.all_gather_into_tensor(gathered, torch.full((1,), float(self.rank), device="cuda"))
        self.same(gathered, torch.arange(self.ranks, device="cuda").float(), "all_gather_into_tensor")
        bits = torch.tensor([1 << self.rank], device="cuda")
        try:
            dist.all_reduce(bits, op=dist.ReduceOp.BOR)
            raise AssertionError("an operation that neither has was taken")
        except ValueError as refusal:
            if "NCCL" not in str(refusal):
                raise
        on_cpu = torch.ones(5)
        dist.all_reduce(on_cpu)
        self.same(on_cpu, torch.full((5,), float(self.ranks)), "a CPU tensor")
        objects = [None] * self.ranks
        dist.all_gather_object(objects, {"rank": self.rank})
        if objects != [{"rank": each} for each in range(self.ranks)]:
            raise RuntimeError(f"all_gather_object: {objects}")


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


# ---- figures ----
def host_us(call, count=100, batches=15):
    """Of one call, where the GPU has room for all of a batch; the median batch."""
    taken = []
    for _ in range(batches):
        torch.cuda.synchronize()
        dist.barrier()
        before = time.perf_counter()
        for _ in range(count):
            call()
        taken.append((time.perf_counter() - before) / count * 1e6)
        torch.cuda.synchronize()
    return statistics.median(taken)


def host_figures(group, reference, rank):
    say = print if rank == 0 else lambda *_, **__: None
    say("host time of a call, us       arcomm   async    nccl   async | Communicator.all_reduce  the C call")
    put, handle = load().arcAllReduce, group.communicator.handle()
    for size in (1 << 10, 64 << 10, 1 << 20):
        x = torch.zeros(size // 2, dtype=torch.float16, device="cuda")
        arguments = (x.data_ptr(), x.data_ptr(), x.numel(), 0, 0, handle, torch.cuda.current_stream().cuda_stream)
        figures = [
            host_us(lambda: dist.all_reduce(x)),
            0.0,
            host_us(lambda: dist.all_reduce(x, group=reference)),
            host_us(lambda: dist.all_reduce(x, group=reference, async_op=True).wait()),
            host_us(lambda: group.communicator.all_reduce(x)),
            host_us(lambda: put(*arguments)),
        ]
        figures[1] = host_us(lambda: dist.all_reduce(x, async_op=True).wait())
        say(f"{size:>22} bytes  " + "".join(f"{figure:8.1f}" for figure in figures[:4]) + " |"
            + "".join(f"{figure:16.1f}" for figure in figures[4:]), flush=True)


class Decoder(torch.nn.Module):
    """A random decoder of which each rank has a part of every layer, as in Megatron-LM; greedy, with a cache."""

    def __init__(self, rank, ranks, batch, layers=16, width=2048, heads=16, length=128, vocabulary=32000):
        super().__init__()
        torch.manual_seed(7)  # the whole model on every rank, of which it keeps its part
        self.heads, self.size, self.length = heads // ranks, width // heads, length

        def part(rows, columns, by_rows):
            whole = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * columns ** -0.5
            return whole.chunk(ranks, 0 if by_rows else 1)[rank].contiguous()
        self.embedding = torch.randn(vocabulary, width, device="cuda", dtype=torch.bfloat16)
        self.layers = [(part(width, width, True), part(width, width, True), part(width, width, True), part(width, width, False),
                        part(4 * width, width, True), part(width, 4 * width, False)) for _ in range(layers)]
        self.keys = [torch.zeros(batch, self.heads, length, self.size, device="cuda", dtype=torch.bfloat16) for _ in self.layers]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.places = torch.arange(length, device="cuda")

    def forward(self, token, place, group):
        """token: [batch]; place: [1], where it is put. Returns the next one."""
        functional = torch.nn.functional
        x = functional.embedding(token, self.embedding)
        mask = (self.places <= place)[None, None, None, :]
        for (q, k, v, o, up, down), keys, values in zip(self.layers, self.keys, self.values):
            y = functional.rms_norm(x, x.shape[-1:])
            shape = (x.shape[0], self.heads, 1, self.size)
            keys.index_copy_(2, place, functional.linear(y, k).view(shape))
            values.index_copy_(2, place, functional.linear(y, v).view(shape))
            y = functional.scaled_dot_product_attention(functional.linear(y, q).view(shape), keys, values, attn_mask=mask)
            y = functional.linear(y.reshape(x.shape[0], -1), o)
            dist.all_reduce(y, group=group)
            x = x + y
            y = functional.linear(functional.silu(functional.linear(functional.rms_norm(x, x.shape[-1:]), up)), down)
            dist.all_reduce(y, group=group)
            x = x + y
        return functional.linear(functional.rms_norm(x, x.shape[-1:]), self.embedding).argmax(-1)


@torch.inference_mode()
def decoded(model, batch, group, in_graph, tokens=100):
    """The tokens, and how many a second."""
    token = torch.arange(batch, device="cuda") + 5
    place = torch.zeros(1, dtype=torch.long, device="cuda")
    for _ in range(3):
        model(token, place, group)
    torch.cuda.synchronize()
    if in_graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = model(token, place, group)
    taken = []
    for _ in range(3):
        token.copy_(torch.arange(batch, device="cuda") + 5)
        place.zero_()
        said = []
        torch.cuda.synchronize()
        dist.barrier()
        before = time.perf_counter()
        for _ in range(tokens):
            if in_graph:
                graph.replay()
                following = result
            else:
                following = model(token, place, group)
            token.copy_(following)
            place += 1
            said.append(token.clone())
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - before)
    return torch.stack(said), batch * tokens / min(taken)


def serving_figures(group, reference, rank, ranks):
    say = print if rank == 0 else lambda *_, **__: None
    say("tokens per second of a random decoder (16 layers, 2048 wide, bfloat16), tensor parallel; the same tokens")
    say("batch              eager: arcomm        nccl           graph: arcomm        nccl")
    for batch in (1, 8, 64):
        model = Decoder(rank, ranks, batch)
        speeds, first = [], None
        for in_graph in (False, True):
            for whose in (None, reference):
                said, speed = decoded(model, batch, whose, in_graph)
                speeds.append(speed)
                first = said if first is None else first
                # Two addends have one sum; more may be added in another order.
                if ranks == 2 and not torch.equal(said, first):
                    raise RuntimeError(f"batch {batch}: other tokens with {'NCCL' if whose else 'arcomm'}, graph {in_graph}")
        say(f"{batch:>5} {speeds[0]:27.0f} {speeds[1]:11.0f} {speeds[2]:27.0f} {speeds[3]:11.0f}", flush=True)
    group.communicator.check()


def figures(options):
    group = started(options, torch.device("cuda", options.rank))
    reference = dist.new_group(list(range(options.ranks)), backend="nccl")
    dist.all_reduce(torch.ones(1, device="cuda"), group=reference)
    host_figures(group, reference, options.rank)
    serving_figures(group, reference, options.rank, options.ranks)
    dist.barrier()
    torch.cuda.synchronize()
    sys.stdout.flush()
    os._exit(0)  # graphs of NCCL's operations live on


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--id-file", required=True)
    parser.add_argument("--killed", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--only", nargs="*", help="checks by their names")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    faulthandler.dump_traceback_later(100, exit=True)  # says where it hung
    try:
        (killed if options.killed else figures if options.figures else check)(options)
    except Exception as why:  # one line is all that the caller shows; the process group may hang in its own end
        traceback.print_exc()
        print(f"rank {options.rank}: FAILED: {type(why).__name__}: {why}", flush=True)
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
