"""What torch_backend_rank.py holds the backend "arcomm" to: the results of a group of NCCL's beside it."""
import datetime
import time

import torch
import torch.distributed as dist


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
