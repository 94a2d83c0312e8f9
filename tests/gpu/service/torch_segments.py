#!/usr/bin/env python3
"""A PyTorch process, one per GPU, whose tensors lie in expandable segments: memory that PyTorch maps in chunks of 20 MB
(2 MB for small tensors), and that it unmaps and maps anew under the same addresses.

  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torch_segments.py --rank R --ranks N --id-file PATH ...
  TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0 ... torch_segments.py --refused ...    memory that no other process can be given

Sums of tensors that lie on one chunk and across many, between two runs of chunks, on memory that has changed since, and
in graphs whose neighbours have gone, held to torch.distributed exactly. Prints one line with the verdict; exit code 1
where anything differs.
"""
import ctypes
import faulthandler
import os
import sys

import torch
import torch.distributed as dist

import torch_rank

MB = 1 << 20
CHUNK = 20 * MB
BF16 = torch.bfloat16
IPC_CAPABLE = 10  # CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE


def is_mapped(tensor):
    """Whether it lies in an expandable segment: the driver knows no IPC handle of such memory."""
    capable = ctypes.c_int(1)
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    failure = driver.cuPointerGetAttribute(ctypes.byref(capable), IPC_CAPABLE, tensor.data_ptr())
    if failure != 0:
        raise RuntimeError(f"cuPointerGetAttribute: {failure}")
    return capable.value == 0


class SegmentChecks(torch_rank.Checks):
    was_inside = False  # a graph's memory lay in the middle of what was registered and then cut up

    def tensor(self, megabytes):
        """At the lowest free addresses: what its values are made of lies behind it."""
        made = torch.empty(megabytes * MB // 2, dtype=BF16, device="cuda")
        made.copy_(self.integers(made.numel(), BF16))
        if not is_mapped(made):
            raise RuntimeError("PyTorch's expandable segments are off: set PYTORCH_CUDA_ALLOC_CONF="
                               "expandable_segments:True")
        return made

    def in_place(self, part, what):
        """Of a part as it was filled: a sum of sums would not be exact for every number of ranks."""
        expected = torch_rank.expected_of(part)
        self.comm.all_reduce(part, part)
        self.compare(part, expected, what, True)

    def sizes(self):
        for megabytes in (2, 8, 20, 64, 200):
            self.in_place(self.tensor(megabytes), f"{megabytes} MB")

    def middles(self):
        """Parts of one tensor that begin and end within chunks, and send and recv that share some."""
        big = self.tensor(240)
        to_chunk = (-big.data_ptr()) % CHUNK // 2  # elements, if segments began at whole chunks
        for begin in (1, to_chunk + 3, 7 * MB + 5, 10 * MB, 10 * MB - 1):
            for count in (4 * MB + 1, 32 * MB + 7):
                part = big[begin:begin + count]
                part.copy_(self.integers(count, BF16))
                self.in_place(part, f"elements {begin} + {count} of a tensor")
        source, target = big[3:3 + 24 * MB], big[40 * MB + 1:64 * MB + 1]
        source.copy_(self.integers(source.numel(), BF16))
        expected = torch_rank.expected_of(source)
        self.comm.all_reduce(source, target)
        self.compare(target, expected, "from one part of a tensor to another", True)

    def changed(self):
        """Other memory under the same addresses, several times over; without a look at it the sum would go astray."""
        seen, again = set(), 0
        for turn in range(4):
            x = self.tensor(64 + 20 * (turn % 2))
            again += x.data_ptr() in seen
            seen.add(x.data_ptr())
            y = torch.empty_like(x)
            expected = torch_rank.expected_of(x)
            self.comm.all_reduce(x, y)
            self.compare(y, expected, "memory that was mapped anew", True)
            self.in_place(x, "memory that was mapped anew, in place")
            del x, y, expected
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        if again == 0:
            raise RuntimeError("no address came again after empty_cache(): nothing was shown")

    def graphed_among_what_goes(self):
        """A graph on a part of registered memory whose other parts are unmapped while it lives."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        big = self.tensor(240)
        self.in_place(big, "all of what will be cut up")
        begin, end = big.data_ptr(), big.data_ptr() + big.nbytes
        del big  # PyTorch keeps it mapped
        front, kept, back = self.tensor(80), self.tensor(60), self.tensor(80)
        self.was_inside = begin < kept.data_ptr() and kept.data_ptr() + kept.nbytes < end
        target = torch.empty_like(kept)
        self.comm.all_reduce(kept, target)
        self.comm.settle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.comm.all_reduce(kept, target)
        for turn in range(3):
            del front, back
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            front = self.tensor(80 + 20 * turn)
            self.in_place(front, "what came in the place of a graph's neighbour")
            kept.copy_(self.integers(kept.numel(), BF16))
            expected = torch_rank.expected_of(kept)
            graph.replay()
            self.compare(target, expected, "in a graph whose neighbours have gone", True)
            back = self.tensor(100)
            self.in_place(back, "behind a graph's memory")
        self.comm.settle()
        return graph, kept, target

    def of_ours(self, count):
        """A sum of memory that libarclient has allocated."""
        place = ctypes.c_void_p()
        self.comm.call("arcMemAlloc", ctypes.byref(place), ctypes.c_size_t(4 * count))
        ours = torch.as_tensor(Lent(place.value, count), device="cuda")
        if ours.data_ptr() != place.value:
            raise RuntimeError("PyTorch copied the memory that it was lent")
        ours.copy_(self.integers(count, torch.float32))
        self.in_place(ours, "memory of arcMemAlloc, after a refusal")


class Lent:
    """Floats at an address, as PyTorch takes them from others."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (count,), "typestr": "<f4", "version": 3}


def share(comm, options):
    checks = SegmentChecks(comm, options.rank)
    checks.sizes()
    checks.middles()
    checks.changed()
    graphs = [checks.graphed_among_what_goes()]
    for dtype in torch_rank.TYPES:
        checks.eager(dtype, 5 * MB + 3, exactly=True)
        checks.eager(dtype, 5 * MB + 3, exactly=False)
    checks.interleaved(BF16)
    for count in (1000, 4 * MB, 32 * MB):
        graphs.append(checks.graphed(BF16, count, first_use=False))
    graphs.append(checks.graphed(BF16, 4 * MB + 8, first_use=True))
    checks.changed()
    torch.cuda.synchronize()
    if not checks.was_inside:
        raise RuntimeError("not seen: a graph whose memory lies inside what was registered and then cut up")
    return graphs, (f"{checks.done} sums in expandable segments are what torch.distributed gets; a graph's memory lay "
                    "inside what was cut up")


def be_refused(comm, options):
    """The call fails before anything is launched, and says what to set; what is asked for later is served."""
    checks = SegmentChecks(comm, options.rank)
    tensor = checks.tensor(64)
    refusal = None
    try:
        comm.all_reduce(tensor, tensor)
    except RuntimeError as why:
        refusal = str(why)
    if refusal is None:
        raise RuntimeError("memory that cannot be shared was taken")
    for word in ("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1", "expandable_segments:False", "no handle at all"):
        if word not in refusal:
            raise RuntimeError(f"the refusal does not say {word}: {refusal}")
    for count in (1000, MB):
        checks.of_ours(count)
    return [], f"memory that cannot be shared was refused, and other memory served then: {refusal}"


def main():
    parser = torch_rank.parser_of_ranks()
    parser.add_argument("--refused", action="store_true")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(170, exit=True)  # says where it hung
    try:
        comm = torch_rank.attach(options)
        graphs, verdict = (be_refused if options.refused else share)(comm, options)
        comm.leave()
        del graphs
        dist.destroy_process_group()
    except Exception as why:  # one line is all that the caller shows; the process group may hang in its own end
        print(f"rank {options.rank}: FAILED: {type(why).__name__}: {why}", flush=True)
        os._exit(1)
    print(f"rank {options.rank} of {options.ranks}, PyTorch {torch.__version__}: {verdict}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
