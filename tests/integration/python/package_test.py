#!/usr/bin/python3
"""The package arcomm over a daemon of its own: two ranks in this process, and ranks in processes that die.

usage: package_test.py <arcommd>     (PYTHONPATH: client/python; ARCOMM_LIBRARY: libarclient)
"""
import array
import concurrent.futures
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import unittest
import warnings

import numpy

import arcomm
from node_daemon import NodeDaemon

ARCOMMD = sys.argv.pop(1)
RANKS = 2
DEADLINE = 30


def setUpModule():
    global daemon
    daemon = NodeDaemon(ARCOMMD)
    arcomm.init(timeout=10)


def tearDownModule():
    arcomm.finalize()
    daemon.stop()


def on_all_ranks(work, ranks=RANKS, **options):
    """What work(communicator, rank) comes to, on a thread a rank."""
    unique_id = arcomm.unique_id()

    def run(rank):
        with arcomm.Communicator(unique_id, rank, ranks, **options) as comm:
            return work(comm, rank)

    with concurrent.futures.ThreadPoolExecutor(ranks) as threads:
        return [each.result(DEADLINE) for each in [threads.submit(run, rank) for rank in range(ranks)]]


class Values(unittest.TestCase):
    def test_every_type_is_summed_in_place_and_the_array_returned(self):
        for dtype in "float16 float32 float64 int8 uint8 int32 uint32 int64 uint64".split():
            def work(comm, rank, dtype=dtype):
                x = (numpy.arange(1001) % 5 + rank).astype(dtype)
                self.assertIs(comm.all_reduce(x), x)
                return x
            expected = (2 * (numpy.arange(1001) % 5) + 1).astype(dtype)
            for x in on_all_ranks(work):
                numpy.testing.assert_array_equal(x, expected)

    def test_every_operation_is_what_numpy_makes_of_it(self):
        inputs = numpy.random.default_rng(7).integers(1, 9, (RANKS, 3, 50)).astype("float64")
        for op, expected in {"sum": inputs.sum(0), "prod": inputs.prod(0), "min": inputs.min(0),
                             "max": inputs.max(0), "avg": inputs.mean(0)}.items():
            for x in on_all_ranks(lambda comm, rank, op=op: comm.all_reduce(inputs[rank].copy(), op=op)):
                numpy.testing.assert_array_equal(x, expected)

    def test_out_receives_and_x_keeps_even_where_it_is_read_only(self):
        def work(comm, rank):
            x = numpy.full(10, rank + 1, "float32")
            x.flags.writeable = False
            out = numpy.full(10, numpy.nan, "float32")
            self.assertIs(comm.all_reduce(x, out), out)
            self.assertEqual(x[0], rank + 1)
            return out
        for out in on_all_ranks(work):
            numpy.testing.assert_array_equal(out, numpy.full(10, 3, "float32"))

    def test_whatever_has_the_buffer_protocol_serves(self):
        def work(comm, rank):
            x = array.array("d", [1.5, rank])
            comm.all_reduce(x)
            comm.all_reduce(data := bytearray([1, 2, rank]))
            return x.tolist(), bytes(data)
        self.assertEqual(on_all_ranks(work), [([3.0, 1.0], bytes([2, 4, 1]))] * RANKS)

    def test_dlpack_serves_and_is_given_back(self):
        class Lender:
            def __init__(self, lent):
                self.lent = lent

            def __dlpack__(self, **_):
                return self.lent.__dlpack__()

        def work(comm, rank):
            x = numpy.full((4, 5), rank, "int64")
            before = sys.getrefcount(x)
            for _ in range(10):
                comm.all_reduce(Lender(x), op="max")
            gc.collect()
            self.assertEqual(sys.getrefcount(x), before)
            return x
        for x in on_all_ranks(work):
            self.assertTrue((x == 1).all())

    def test_a_codec_rounds_and_only_where_it_is_asked_for(self):
        def work(comm, rank):
            values = numpy.random.default_rng(rank).standard_normal(4096).astype("float32")
            return values, comm.all_reduce(values.copy(), codec="q4"), comm.all_reduce(values.copy())
        made = on_all_ranks(work)
        exact = made[0][0] + made[1][0]
        for _, coded, plain in made:
            numpy.testing.assert_array_equal(plain, exact)
            numpy.testing.assert_array_equal(coded, made[0][1])
            self.assertFalse((coded == exact).all())
            self.assertLess(numpy.abs(coded - exact).max(), 1)

    def test_a_communicators_codec_holds_until_a_call_says_none(self):
        def work(comm, rank):
            values = numpy.random.default_rng(rank).standard_normal(256).astype("float32")
            return values, comm.all_reduce(values.copy()), comm.all_reduce(values.copy(), codec="none")
        made = on_all_ranks(work, codec="fp8")
        exact = made[0][0] + made[1][0]
        self.assertFalse((made[0][1] == exact).all())
        numpy.testing.assert_array_equal(made[0][2], exact)

    def test_nothing_of_an_empty_array_is_summed(self):
        on_all_ranks(lambda comm, _: comm.all_reduce(numpy.empty(0, "float32")))


class Calls(unittest.TestCase):
    def test_memory_of_the_daemon_is_zeroed_typed_and_lives_as_long_as_a_view_of_it(self):
        x = arcomm.empty((100, 3), "float64")
        self.assertEqual((x.shape, x.dtype, x.any()), ((100, 3), numpy.float64, False))
        view = x[50:]
        del x
        gc.collect()
        view[:] = 7
        self.assertEqual(view.sum(), 7 * 150)
        self.assertEqual(arcomm.empty(3, "bfloat16").dtype, numpy.uint16)

    def test_memory_of_the_daemon_is_summed(self):
        def work(comm, rank):
            x = arcomm.empty(1 << 16)
            x[:] = rank + 1
            return comm.all_reduce(x).copy()
        for x in on_all_ranks(work):
            self.assertTrue((x == 3).all())

    def test_tickets_end_in_any_order_and_keep_what_they_work_on(self):
        def work(comm, rank):
            tickets = [comm.all_reduce_async(numpy.full(1000, i + rank, "int32")) for i in range(20)]
            gc.collect()
            results = [ticket.wait()[0] for ticket in reversed(tickets)]
            self.assertTrue(all(ticket.done and ticket.test() for ticket in tickets))
            return results
        self.assertEqual(on_all_ranks(work), [[2 * i + 1 for i in reversed(range(20))]] * RANKS)

    def test_a_wait_that_ends_leaves_the_operation(self):
        def work(comm, rank):
            if rank == 1:
                time.sleep(0.3)
                return comm.all_reduce(numpy.ones(5))[0]
            ticket = comm.all_reduce_async(numpy.ones(5))
            with self.assertRaises(arcomm.ArcommError) as caught:
                ticket.wait(timeout=0.02)
            self.assertEqual((caught.exception.reason, caught.exception.seq), (arcomm.Reason.Timeout, None))
            self.assertFalse(ticket.done)
            return ticket.wait()[0]
        self.assertEqual(on_all_ranks(work), [2, 2])

    def test_a_ticket_of_what_was_aborted_tells_so(self):
        unique_id = arcomm.unique_id()
        with arcomm.Group():
            comms = [arcomm.Communicator(unique_id, rank, RANKS) for rank in range(RANKS)]
        ticket = comms[0].all_reduce_async(numpy.ones(4))
        comms[0].abort()
        self.assertFalse(ticket.done)
        for _ in range(2):
            with self.assertRaises(arcomm.ArcommError) as caught:
                ticket.wait()
            self.assertEqual(caught.exception.code, arcomm.Result.Aborted)
        self.assertTrue(ticket.done)
        comms[1].abort()

    def test_a_plan_is_started_again_and_again(self):
        def work(comm, rank):
            x, out = numpy.empty(64, "float32"), numpy.empty(64, "float32")
            with arcomm.Plan(comm, x, out) as plan:
                for i in range(50):
                    x[:] = i * (rank + 1)
                    plan.start()
                    self.assertIs(plan.wait(), out)
                    self.assertTrue((out == 3 * i).all())
        on_all_ranks(work)

    def test_one_thread_drives_several_ranks_in_a_group(self):
        unique_id = arcomm.unique_id()
        with arcomm.Group():
            comms = [arcomm.Communicator(unique_id, rank, RANKS) for rank in range(RANKS)]
        arrays = [numpy.full(9, rank + 1.0) for rank in range(RANKS)]
        with arcomm.Group():
            for comm, x in zip(comms, arrays):
                comm.all_reduce(x)
        self.assertTrue(all((x == 3).all() for x in arrays))
        with arcomm.Group():
            for comm in comms:
                comm.close()
        self.assertTrue(all("closed" in repr(comm) for comm in comms))

    def test_other_threads_run_while_a_call_waits(self):
        def work(comm, rank):
            if rank == 1:
                time.sleep(0.2)
            comm.all_reduce(numpy.ones(1))
        turns, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                turns[0] += 1
                time.sleep(0.001)
        counting = threading.Thread(target=count)
        counting.start()
        on_all_ranks(work)
        stop.set()
        counting.join()
        self.assertGreater(turns[0], 20)

    def test_a_communicator_that_is_dropped_is_aborted_and_says_so(self):
        unique_id = arcomm.unique_id()
        with arcomm.Group():
            comms = [arcomm.Communicator(unique_id, rank, RANKS) for rank in range(RANKS)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dropped = comms.pop()
            del dropped
            gc.collect()
        self.assertEqual([each.category for each in caught], [ResourceWarning])
        with self.assertRaises(arcomm.ArcommError) as failed:
            comms[0].all_reduce(numpy.ones(1))
        self.assertEqual((failed.exception.code, failed.exception.rank), (arcomm.Result.Aborted, 1))
        comms[0].abort()


class Refusals(unittest.TestCase):
    def refused(self, *arguments, **options):
        with arcomm.Communicator(arcomm.unique_id(), 0, 1) as comm, self.assertRaises(arcomm.ArcommError) as caught:
            comm.all_reduce(*arguments, **options)
        self.assertEqual(caught.exception.code, arcomm.Result.InvalidArgument)
        return caught.exception.message

    def test_arrays_that_cannot_be_served_are_told_why(self):
        x = numpy.ones((4, 4))
        self.assertIn("x is not contiguous", self.refused(x.T[1:]))
        self.assertIn("format 'Zf'", self.refused(x.astype("complex64")))
        self.assertIn("byte order", self.refused(x.astype(">f4")))
        self.assertIn("type int16 are not served", self.refused(x.astype("int16")))
        self.assertIn("x is read-only", self.refused(b"abc"))
        self.assertIn("x is a list", self.refused([1.0, 2.0]))
        self.assertIn("out 15 of float64", self.refused(x, numpy.ones(15)))
        self.assertIn("out 16 of float32", self.refused(x, x.astype("float32")))
        frozen = x.copy()
        frozen.flags.writeable = False
        self.assertIn("out is read-only", self.refused(x, frozen))

    def test_memory_of_a_gpu_is_refused_by_the_host(self):
        class OnGpu:
            __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}
        self.assertIn("x is in a GPU's memory", self.refused(OnGpu()))

    def test_words_that_name_nothing_are_answered_with_those_that_do(self):
        x = numpy.ones(4)
        self.assertIn("sum, prod, min, max, avg", self.refused(x, op="total"))
        self.assertIn("q4_rotated", self.refused(x, codec="zip"))
        self.assertIn("q4", self.refused(x.astype("int32"), codec="q4"))

    def test_other_arguments(self):
        with self.assertRaisesRegex(arcomm.ArcommError, "unique_id has 3 bytes"):
            arcomm.Communicator(b"abc", 0, 1)
        with self.assertRaisesRegex(arcomm.ArcommError, "most_sms is -1"):
            arcomm.Communicator(arcomm.unique_id(), 0, 1, most_sms=-1)
        with arcomm.Communicator(arcomm.unique_id(), 0, 1, most_sms=16) as comm:  # nothing, on the host
            self.assertEqual(comm.all_reduce(numpy.ones(4)).tolist(), [1] * 4)
        with self.assertRaisesRegex(arcomm.ArcommError, "timeout is -1"):
            arcomm.init(timeout=-1)
        with self.assertRaisesRegex(arcomm.ArcommError, "shape is"):
            arcomm.empty((2, -1))
        with self.assertRaisesRegex(arcomm.ArcommError, "float8"):
            arcomm.empty(2, "float8")

    def test_a_closed_communicator_says_so(self):
        comm = arcomm.Communicator(arcomm.unique_id(), 0, 1)
        comm.close()
        comm.close()
        with self.assertRaisesRegex(arcomm.ArcommError, "closed"):
            comm.all_reduce(numpy.ones(1))


RANK_IN_A_PROCESS = """
import os, sys, numpy, arcomm
comm = arcomm.Communicator(bytes.fromhex(sys.argv[1]), 1, 2)
comm.all_reduce(numpy.ones(4))
print("summed", flush=True)
sys.stdin.readline()
comm.all_reduce(numpy.ones(4))
"""


class Failures(unittest.TestCase):
    def test_a_rank_that_is_killed_is_named(self):
        unique_id = arcomm.unique_id()
        with subprocess.Popen([sys.executable, "-c", RANK_IN_A_PROCESS, unique_id.hex()],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            comm = arcomm.Communicator(unique_id, 0, 2)
            self.assertEqual(comm.all_reduce(numpy.ones(4))[0], 2)
            self.assertEqual(other.stdout.readline(), b"summed\n")
            in_flight = comm.all_reduce_async(numpy.ones(4))
            other.kill()
            began = time.monotonic()
            with self.assertRaises(arcomm.ArcommError) as caught:
                in_flight.wait()
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual((caught.exception.code, caught.exception.rank), (arcomm.Result.Aborted, 1))
            # The second where the daemon noticed the death before it had taken up the operation.
            self.assertIn(caught.exception.reason, (arcomm.Reason.RemoteDied, arcomm.Reason.Revoked))
            self.assertTrue(in_flight.done)
            with self.assertRaises(arcomm.ArcommError) as later:
                comm.all_reduce(numpy.ones(4))
            self.assertEqual((later.exception.code, later.exception.rank), (arcomm.Result.Aborted, 1))
            with self.assertRaises(arcomm.ArcommError):
                comm.check()
            comm.abort()

    def test_ranks_that_ask_for_different_things_hear_of_both(self):
        def work(comm, rank):
            with self.assertRaises(arcomm.ArcommError) as caught:
                comm.all_reduce(numpy.ones(4 + rank))
            return caught.exception
        for failure in on_all_ranks(work):
            self.assertEqual(failure.reason, arcomm.Reason.Mismatch)
            self.assertIn("5", failure.message)

    def test_what_was_aborted_is_rebuilt(self):
        def work(comm, rank):
            before = comm.epoch
            with self.assertRaises(arcomm.ArcommError):
                comm.all_reduce(numpy.ones(4 + rank))
            comm.rebuild()
            self.assertGreater(comm.epoch, before)
            return comm.all_reduce(numpy.ones(3))[0]
        self.assertEqual(on_all_ranks(work), [2, 2])

    def test_a_block_that_raises_aborts_on_all_ranks(self):
        def work(comm, rank):
            if rank == 1:
                raise KeyError("mine")
            with self.assertRaises(arcomm.ArcommError) as caught:
                comm.all_reduce(numpy.ones(4))
            self.assertEqual(caught.exception.rank, 1)
        with self.assertRaises(KeyError):
            on_all_ranks(work)

    def test_a_child_of_fork_is_refused_and_the_parent_goes_on(self):
        def work(comm, rank):
            comm.all_reduce(numpy.ones(1))
            if rank == 0:
                child = os.fork()
                if child == 0:
                    try:
                        comm.all_reduce(numpy.ones(1))
                    except arcomm.ArcommError as failure:
                        os._exit(0 if failure.reason == arcomm.Reason.Forked else 2)
                    os._exit(3)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
            return comm.all_reduce(numpy.ones(1))[0]
        self.assertEqual(on_all_ranks(work), [2, 2])

    def test_an_interpreter_that_ends_with_everything_open_ends_cleanly(self):
        program = ("import arcomm, numpy; c = arcomm.Communicator(arcomm.unique_id(), 0, 1); x = arcomm.empty(9); "
                   "c.all_reduce(x); t = c.all_reduce_async(x); print(c, t)")
        ended = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
                               timeout=DEADLINE)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("rank 0 of 1", ended.stdout)

    def test_no_daemon_is_an_error_that_says_so(self):
        ended = subprocess.run([sys.executable, "-c", "import arcomm; arcomm.init()"], capture_output=True, text=True,
                               timeout=DEADLINE, env=os.environ | {"ARCOMM_RUNTIME_DIR": daemon.folder + "/none"})
        self.assertIn("ArcommError", ended.stderr)
        self.assertIn("arcommd", ended.stderr)

    def test_an_error_travels_between_processes(self):
        failure = arcomm.ArcommError("words", arcomm.Result.Aborted, arcomm.Reason.RemoteDied, 3, 9)
        copy = pickle.loads(pickle.dumps(failure))
        self.assertEqual((str(copy), copy.code, copy.reason, copy.rank, copy.seq),
                         ("words", failure.code, failure.reason, 3, 9))


if __name__ == "__main__":
    unittest.main()
