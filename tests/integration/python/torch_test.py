#!/usr/bin/env python3
"""The backend "arcomm" of torch.distributed over a daemon: every program gives what it gives with Gloo.

usage: torch_test.py <arcommd>     (a Python with torch; PYTHONPATH: client/python; ARCOMM_LIBRARY: libarclient)
"""
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed as dist

import arcomm
import arcomm.torch_backend
from node_daemon import start_daemon

ARCOMMD = sys.argv.pop(1) if __name__ == "__main__" else None
RANKS = 2
DEADLINE = 120


def setUpModule():
    global folder, daemon
    folder = tempfile.TemporaryDirectory(prefix="arc")
    daemon = start_daemon(ARCOMMD, folder.name)


def tearDownModule():
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(DEADLINE) == 0
    folder.cleanup()


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
