#!/usr/bin/env python3
"""A PyTorch process, one per GPU, that sums its own CUDA tensors through libarclient, by ctypes.

Tensors come from the caching allocator, at odd offsets too; sums run on PyTorch's current stream between its own
kernels, eagerly and inside torch.cuda.graph. What comes out is held to torch.distributed (NCCL): small integers
exactly, random values to the rounding of the type.

  torch_rank.py --rank R --ranks N --id-file PATH [--library PATH] [--runtime-dir DIR]

Prints one line with the verdict; exit code 1 where anything differs.
"""
import argparse
import ctypes
import datetime
import faulthandler
import os
import sys
import time

import torch
import torch.distributed as dist

HALF, BF16, FLOAT = 0, 1, 2
TYPES = {torch.float16: HALF, torch.bfloat16: BF16, torch.float32: FLOAT}
# Two correct sums of a few values differ by their roundings: NCCL rounds at every step, we once.
TOLERANCE = {torch.float16: 2 ** -9, torch.bfloat16: 2 ** -6, torch.float32: 2 ** -21}
COUNTS = [1, 7, 1024, 4097, 65536, 131071, 131072, 131073, 1 << 20, (8 << 20) + 5]
PATIENCE_S = 60


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("runtime_dir", ctypes.c_char_p), ("device", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_uint64)]


class Communicator:
    """libarclient's, as far as it is used here. A failing call raises with the library's own words."""

    def __init__(self, library, runtime_dir, rank, ranks, id_file):
        self.lib = ctypes.CDLL(library)
        self.lib.arcGetLastError.restype = ctypes.c_char_p
        self.lib.arcGetLastError.argtypes = [ctypes.c_void_p]
        self.lib.arcCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        self.lib.arcAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                          ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.arcCommDestroy.argtypes = [ctypes.c_void_p]
        self.lib.arcCommGetAsyncError.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        config = Config(ctypes.sizeof(Config), runtime_dir.encode() if runtime_dir else None, b"gpu", 20000)
        self.call("arcInit", ctypes.byref(config))
        unique = self.exchange(rank, id_file)
        self.comm = ctypes.c_void_p()
        self.call("arcCommInitRank", ctypes.byref(self.comm), ranks, unique, rank)

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.lib.arcGetLastError(None).decode()}")

    def exchange(self, rank, id_file):
        unique = UniqueId()
        if rank == 0:
            self.call("arcGetUniqueId", ctypes.byref(unique))
            with open(id_file + ".part", "wb") as file:
                file.write(bytes(unique))
            os.rename(id_file + ".part", id_file)
            return unique
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.exists(id_file):
            if time.monotonic() > deadline:
                raise RuntimeError(f"rank 0 wrote no id to {id_file}")
            time.sleep(0.02)
        with open(id_file, "rb") as file:
            return UniqueId.from_buffer_copy(file.read())

    def all_reduce(self, send, recv):
        """On PyTorch's current stream, in order with its kernels."""
        self.call("arcAllReduce", send.data_ptr(), recv.data_ptr(), send.numel(), TYPES[send.dtype], 0, self.comm,
                  torch.cuda.current_stream().cuda_stream)

    def settle(self):
        """Waits for the GPU, for a limited time, and asks whether all went well."""
        done = torch.cuda.Event()
        done.record()
        deadline = time.monotonic() + PATIENCE_S
        while not done.query():
            if time.monotonic() > deadline:
                raise RuntimeError("the stream hangs")
        state = ctypes.c_int()
        self.call("arcCommGetAsyncError", self.comm, ctypes.byref(state))
        if state.value != 0:
            raise RuntimeError(f"a sum did not end well: {self.lib.arcGetLastError(None).decode()}")

    def leave(self):
        """When every rank has compared everything: from then on any of them may be gone first."""
        dist.barrier()
        torch.cuda.synchronize()
        self.call("arcCommDestroy", self.comm)
        self.call("arcFinalize")


def expected_of(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total


class Checks:
    def __init__(self, comm, rank):
        self.comm = comm
        self.random = torch.Generator(device="cuda").manual_seed(1000 + rank)
        self.done = 0

    def integers(self, count, dtype):
        """Whose sums every type here holds exactly."""
        return torch.randint(-2, 2, (count,), generator=self.random, device="cuda").to(dtype)

    def values(self, count, dtype):
        return torch.randn(count, generator=self.random, device="cuda").to(dtype)

    def compare(self, got, expected, what, exactly):
        self.comm.settle()
        if exactly:
            same = torch.equal(got, expected)
        else:
            slack = TOLERANCE[got.dtype]
            same = torch.allclose(got.float(), expected.float(), rtol=slack, atol=4 * slack)
        if not same:
            worst = (got.float() - expected.float()).abs().max().item()
            raise RuntimeError(f"{what}: differs from torch.distributed by up to {worst}")
        self.done += 1

    def eager(self, dtype, count, exactly):
        values = self.integers if exactly else self.values
        what = f"{count} of {dtype}, {'integers' if exactly else 'random'}"
        for offset in (0, 1, 3):  # elements, into a tensor that the caching allocator placed
            source = values(count + offset, dtype)[offset:]
            target = torch.full((count + 2 * offset,), float("nan"), dtype=dtype, device="cuda")
            expected = expected_of(source)
            part = target[offset:offset + count]
            self.comm.all_reduce(source, part)
            self.compare(part, expected, f"{what}, offset {offset}", exactly)
            self.comm.all_reduce(source, source)
            self.compare(source, expected, f"{what}, offset {offset}, in place", exactly)

    def interleaved(self, dtype):
        """PyTorch's kernels before and behind, with nothing in between that waits."""
        x = self.integers(50000, dtype)
        expected = expected_of(x * 2 + 1) - 3
        y = x * 2 + 1
        self.comm.all_reduce(y, y)
        y -= 3
        self.compare(y, expected, f"between kernels, {dtype}", True)

    def freed_and_taken_again(self):
        """An address that comes to mean other memory."""
        for _ in range(3):
            big = self.integers(40 << 20, torch.bfloat16)
            expected = expected_of(big)
            self.comm.all_reduce(big, big)
            self.compare(big, expected, "memory that was freed and allocated again", True)
            del big, expected
            torch.cuda.empty_cache()

    def graphed(self, dtype, count, first_use):
        """Captured once, replayed with other inputs; where `first_use`, also registered while captured."""
        source = self.integers(count, dtype)
        target = torch.empty_like(source)
        if not first_use:
            self.comm.all_reduce(source, target)
            self.comm.settle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = source * 2
            self.comm.all_reduce(doubled, target)
            result = target + 1
            self.comm.all_reduce(result, result)
        for _ in range(4):
            source.copy_(self.integers(count, dtype))
            expected = expected_of(expected_of(source * 2) + 1)
            graph.replay()
            self.compare(result, expected, f"in a graph, {count} of {dtype}", True)
        self.comm.settle()
        return graph, source, target, doubled, result  # a graph's memory stays as long as it does


def attach(options):
    """A communicator of ours and one of torch.distributed, over the same ranks."""
    torch.cuda.set_device(options.rank)
    store = dist.FileStore(options.id_file + ".torch", options.ranks)
    dist.init_process_group("nccl", store=store, rank=options.rank, world_size=options.ranks,
                            timeout=datetime.timedelta(seconds=PATIENCE_S),
                            device_id=torch.device("cuda", options.rank))
    dist.all_reduce(torch.ones(1, device="cuda"))  # NCCL sets itself up now, not during a capture
    torch.cuda.synchronize()
    return Communicator(options.library, options.runtime_dir, options.rank, options.ranks, options.id_file)


def run(options):
    comm = attach(options)
    checks = Checks(comm, options.rank)
    graphs = [checks.graphed(torch.bfloat16, 3000, first_use=True)]
    for dtype in TYPES:
        for count in COUNTS:
            checks.eager(dtype, count, exactly=True)
            checks.eager(dtype, count, exactly=False)
        checks.interleaved(dtype)
        for count in (1000, 131072, 2 << 20):
            graphs.append(checks.graphed(dtype, count, first_use=False))
    checks.freed_and_taken_again()
    torch.cuda.synchronize()
    comm.leave()
    del graphs
    dist.destroy_process_group()
    return checks.done


def parser_of_ranks():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--id-file", required=True)
    parser.add_argument("--runtime-dir", default="")
    parser.add_argument("--library", default="libarclient.so.0", help="by default as the loader finds it")
    return parser


def main():
    options = parser_of_ranks().parse_args()
    faulthandler.dump_traceback_later(170, exit=True)  # says where it hung
    try:
        done = run(options)
    except Exception as why:  # one line is all that the caller shows; the process group may hang in its own end
        print(f"rank {options.rank}: FAILED: {type(why).__name__}: {why}", flush=True)
        os._exit(1)
    print(f"rank {options.rank} of {options.ranks}: {done} sums of PyTorch {torch.__version__} are what "
          f"torch.distributed gets", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
