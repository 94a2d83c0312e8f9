"""Figures of the backend "arcomm" beside NCCL's: host time of a call, and tokens per second of a decoder."""
import statistics
import time

import torch
import torch.distributed as dist

from arcomm.library import load

from torch_decoder import Decoder, decoded


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
