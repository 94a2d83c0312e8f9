#!/usr/bin/env python3
"""The backend "arcomm" of torch.distributed over a daemon: every program gives what it gives with Gloo.

usage: torch_test.py <arcommd>     (a Python with torch; PYTHONPATH: client/python; ARCOMM_LIBRARY: libarclient)
"""
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed as dist

import arcomm
import arcomm.torch_backend
from node_daemon import NodeDaemon

ARCOMMD = sys.argv.pop(1) if __name__ == "__main__" else None
RANKS = 2
DEADLINE = 120


def setUpModule():
    global daemon
    daemon = NodeDaemon(ARCOMMD)


def tearDownModule():
    daemon.stop()


def served():
    """AllReduces of the default group go through the daemon."""
    return dist.distributed_c10d._get_default_group().communicator is not None


def one_rank(program, backend, path, rank, answers):
    torch.manual_seed(rank)
    arcomm.torch_backend.register()
    dist.init_process_group(backend, init_method="file://" + path, rank=rank, world_size=RANKS)
    if backend == "arcomm" and not served():
        raise AssertionError("the group does not use the daemon")
    answers.put((rank, program(rank)))
    dist.barrier()
    dist.destroy_process_group()


def run(program, backend):
    """What program(rank) comes to on each rank, in a process each."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as place:
        ranks = [context.Process(target=one_rank, args=(program, backend, place + "/store", rank, answers))
                 for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        try:
            told = dict(answers.get(timeout=DEADLINE) for _ in ranks)
        finally:
            for rank in ranks:
                rank.join(DEADLINE)
        assert [rank.exitcode for rank in ranks] == [0] * RANKS
        return [told[rank] for rank in range(RANKS)]


def every_operation(rank):
    results = {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            x = (torch.arange(1000) % 7 + rank + 1).to(dtype)
            dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
            results[f"{dtype} {op}"] = x.double().tolist()
    flags = torch.tensor([rank == 0, False])
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)  # no type of the daemon's
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)  # no operation of it
    works = [dist.all_reduce(torch.full((100,), float(i)), async_op=True) for i in range(10)]
    return results, flags.tolist(), bits.tolist(), [work.wait() for work in works]


def strided(rank):
    x = torch.full((4, 6), rank + 1.0)
    dist.all_reduce(x.t()[1:])
    return x.tolist()


def other_collectives(rank):
    gathered = [torch.zeros(3) for _ in range(RANKS)]
    dist.all_gather(gathered, torch.full((3,), float(rank)))
    x = torch.full((2,), float(rank))
    dist.broadcast(x, 1)
    objects = [None] * RANKS
    dist.all_gather_object(objects, {"rank": rank})
    alone = [dist.new_group([each]) for each in range(RANKS)][rank]
    y = torch.full((2,), float(rank))
    dist.all_reduce(y, group=alone)
    together = dist.new_group([0, 1])
    dist.all_reduce(y, group=together)
    return [each.tolist() for each in gathered], x.tolist(), objects, y.tolist()


def trained_by_ddp(rank):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).double()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    torch.manual_seed(2 + rank)
    for _ in range(5):
        optimizer.zero_grad()
        parallel(torch.randn(8, 16, dtype=torch.float64)).square().mean().backward()
        optimizer.step()
    return [parameter.tolist() for parameter in model.parameters()]


def layers():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16)).double()


def of_tensor_parallelism(rank):
    """A pair of matrices cut by columns and by rows: what comes out, and the gradients of this rank's parts."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    model = layers()
    parallelize_module(model, init_device_mesh("cpu", (RANKS,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(2)
    y = model(torch.randn(8, 16, dtype=torch.float64))
    y.square().mean().backward()
    return y.tolist(), [parameter.grad.to_local().tolist() for parameter in model.parameters()]


def trained_by_fsdp(rank):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (RANKS,))
    model = layers()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(2 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 16, dtype=torch.float64)).square().mean().backward()
        optimizer.step()
    return [parameter.full_tensor().tolist() for parameter in model.parameters()]


def compiled(rank):
    import torch.distributed._functional_collectives as functional

    @torch.compile(fullgraph=True, backend="aot_eager")  # the graph is what matters, and needs no compiler
    def step(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + functional.all_gather_tensor(x, 0, dist.group.WORLD)[:3]
    return [step(torch.full((3,), rank + float(i))).tolist() for i in range(3)]


def futures(rank):
    """Nobody waits where a future is made: rank 1 comes later."""
    if rank == 1:
        time.sleep(1)
    before = time.monotonic()
    x = torch.full((1000,), rank + 1.0)
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0].sum().item())
    seconds = time.monotonic() - before
    told = future.wait()
    work.wait()
    return told, seconds < 0.5, work.is_completed()


def truths(rank):
    """Any and all, as with NCCL."""
    results = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN):
        x = torch.tensor([True, rank == 0, False])
        dist.all_reduce(x, op=op)
        results.append(x.tolist())
    return results


def split(rank):
    """dist.split_group asks for an accelerator in some versions of torch, the group itself does not."""
    group = dist.distributed_c10d._get_default_group()
    alone = group.split_group([rank], group_name=f"alone {rank}", group_desc="one rank")
    x = torch.full((2,), rank + 1.0)
    alone.allreduce([x], dist.AllreduceOptions()).wait()
    told = x.tolist(), alone.group_name, alone.group_desc, alone.size(), group.split_group([1 - rank]) is None
    alone.shutdown()
    return told


def of_a_group_with_a_codec(rank):
    """Sums of floats are the codec's, and of them alone: how far each is off, in parts of its largest element."""
    group = dist.new_group([0, 1], pg_options=arcomm.torch_backend.Options(codec="q4", most_sms=8))
    off = {}
    for dtype in (torch.float32, torch.bfloat16):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            for is_async in (False, True):
                torch.manual_seed(5)
                parts = [torch.randn(1000).to(dtype) for _ in range(RANKS)]
                x = parts[rank].clone()
                work = dist.all_reduce(x, op=op, group=group, async_op=is_async)
                if work is not None:
                    work.wait()
                exact = sum(part.double() for part in parts) / (RANKS if op == dist.ReduceOp.AVG else 1)
                off[f"{dtype} {op} {is_async}"] = ((x.double() - exact).abs().max() / exact.abs().max()).item()
    exact = []
    for x, op in ((torch.tensor([rank + 70001]), dist.ReduceOp.SUM), (torch.tensor([rank + 0.123], dtype=torch.float64), dist.ReduceOp.SUM),
                  (torch.tensor([rank + 0.123]), dist.ReduceOp.MAX), (torch.tensor([rank == 1, False]), dist.ReduceOp.SUM)):
        dist.all_reduce(x, op=op, group=group)
        exact.append(x.tolist())
    return off, exact


def dies(rank):
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(3))
    except arcomm.ArcommError as failure:
        return failure.reason, failure.rank, time.monotonic() - began


def survivor(path, rank, answers):
    arcomm.torch_backend.register()
    dist.init_process_group("arcomm", init_method="file://" + path, rank=rank, world_size=RANKS)
    answers.put(dies(rank))
    answers.close()
    answers.join_thread()  # it is written
    os._exit(0)  # the group cannot be left: Gloo's ranks wait for the dead one


class Backend(unittest.TestCase):
    def test_every_operation_is_as_with_gloo(self):
        self.assertEqual(run(every_operation, "arcomm"), run(every_operation, "gloo"))

    def test_what_is_not_contiguous_is_summed_where_it_is(self):
        # Gloo sums what lies behind the first element instead (seen with torch 2.15).
        expected = torch.full((4, 6), 3.0)
        for rank, told in enumerate(run(strided, "arcomm")):
            expected[:, 0] = rank + 1.0
            self.assertEqual(told, expected.tolist())

    def test_other_collectives_and_groups_are_as_with_gloo(self):
        self.assertEqual(run(other_collectives, "arcomm"), run(other_collectives, "gloo"))

    def test_ddp_trains_the_same_model_on_all_ranks_and_as_with_gloo(self):
        ours, theirs = run(trained_by_ddp, "arcomm"), run(trained_by_ddp, "gloo")
        self.assertEqual(ours[0], ours[1])
        for mine, gloos in zip(ours[0], theirs[0]):
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(gloos))

    def test_tensor_parallel_layers_are_as_with_gloo(self):
        self.assertEqual(run(of_tensor_parallelism, "arcomm"), run(of_tensor_parallelism, "gloo"))

    def test_fsdp_trains_the_same_model_as_with_gloo(self):
        self.assertEqual(run(trained_by_fsdp, "arcomm"), run(trained_by_fsdp, "gloo"))

    def test_compiled_functional_collectives_are_as_with_gloo(self):
        self.assertEqual(run(compiled, "arcomm"), run(compiled, "gloo"))

    def test_a_future_ends_without_a_wait_where_it_is_made(self):
        self.assertEqual(run(futures, "arcomm"), [(3000.0, True, True)] * RANKS)

    def test_sums_of_truth_values_are_any_and_products_all(self):
        self.assertEqual(run(truths, "arcomm"), [[[True, True, False]] * 2 + [[True, False, False]] * 2] * RANKS)

    def test_a_group_with_a_codec_uses_it_for_what_it_serves_alone(self):
        for off, exact in run(of_a_group_with_a_codec, "arcomm"):
            for what, part in off.items():
                self.assertGreater(part, 1e-3, what)
                self.assertLess(part, 0.13, what)
            self.assertEqual(exact, [[140003], [1 + 2 * 0.123], [torch.tensor(1.123).item()], [True, False]])

    def test_options_that_nobody_can_mean_are_refused_when_they_are_made(self):
        for wrong in (-1, 2**32, "8", None):
            with self.assertRaisesRegex(arcomm.ArcommError, "most_sms is"):
                arcomm.torch_backend.Options(most_sms=wrong)
        with self.assertRaisesRegex(arcomm.ArcommError, "codec is 'q5'"):
            arcomm.torch_backend.Options(codec="q5")

    def test_a_codec_by_the_environment_is_refused_by_name_where_there_is_none_such(self):
        program = ("import os, sys, torch, torch.distributed as dist, arcomm.torch_backend as b; b.register()\n"
                   "dist.init_process_group('arcomm', init_method='file://' + sys.argv[1], rank=0, world_size=1)")
        with tempfile.TemporaryDirectory() as place:
            ended = subprocess.run([sys.executable, "-c", program, place + "/store"], capture_output=True, text=True,
                                   timeout=DEADLINE, env=os.environ | {"ARCOMM_TORCH_CODEC": "q5"})
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("codec is 'q5': it is one of none, fp8, q8", ended.stderr)

    def test_a_group_is_split(self):
        self.assertEqual(run(split, "arcomm"),
                         [([rank + 1.0] * 2, f"alone {rank}", "one rank", 1, True) for rank in range(RANKS)])

    def test_the_example_is_as_one_process(self):
        example = os.path.join(os.path.dirname(__file__), "../../../client/examples/tensor_parallel_torch/main.py")
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([sys.executable, example], stdout=subprocess.PIPE, text=True,
                                  env=os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
                 for rank in range(RANKS)]
        told = [rank.communicate(timeout=DEADLINE)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * RANKS)
        self.assertIn("2 ranks on cpu: as one process", told[0])

    def test_a_rank_that_is_killed_is_named_to_the_others(self):
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        with tempfile.TemporaryDirectory() as place:
            ranks = [context.Process(target=survivor, args=(place + "/store", rank, answers)) for rank in range(RANKS)]
            for rank in ranks:
                rank.start()
            reason, rank, seconds = answers.get(timeout=DEADLINE)
            for each in ranks:
                each.join(DEADLINE)
        # The second where the daemon had noticed before the call was made.
        self.assertIn(reason, (arcomm.Reason.RemoteDied, arcomm.Reason.Revoked))
        self.assertEqual(rank, 1)
        self.assertLess(seconds, 5)

    def test_without_a_daemon_the_group_is_gloos_and_says_so(self):
        program = ("import os, sys, torch, torch.distributed as dist, arcomm.torch_backend as b; b.register()\n"
                   "dist.init_process_group('arcomm', init_method='file://' + sys.argv[1], rank=0, world_size=1)\n"
                   "x = torch.ones(3); dist.all_reduce(x); print(x.tolist()); dist.destroy_process_group()")
        with tempfile.TemporaryDirectory() as place:
            ended = subprocess.run([sys.executable, "-c", program, place + "/store"], capture_output=True, text=True,
                                   timeout=DEADLINE, env=os.environ | {"ARCOMM_RUNTIME_DIR": place + "/none"})
        self.assertEqual((ended.returncode, ended.stdout), (0, "[1.0, 1.0, 1.0]\n"), ended.stderr)
        self.assertIn("AllReduces are Gloo's, not arcommd's: rank 0:", ended.stderr)


if __name__ == "__main__":
    unittest.main()
