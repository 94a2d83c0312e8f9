"""A transformer's MLPs spread over processes, by PyTorch's tensor parallelism, with arcommd beneath:
    torchrun --nproc-per-node 2 main.py            on GPUs where there are enough of them, else on CPUs"""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import arcomm.torch_backend

arcomm.torch_backend.register()  # the installed package does this when torch is imported
rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
device = "cuda" if torch.cuda.device_count() >= ranks else "cpu"
os.environ.setdefault("ARCOMM_DEVICE", "gpu" if device == "cuda" else "host:0")
if device == "cuda":
    torch.cuda.set_device(rank)
dist.init_process_group("arcomm")  # the one line that is not another program's

torch.manual_seed(1)  # the same model and input everywhere
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4))).to(device)
x = torch.randn(8, 512, device=device)
with torch.inference_mode():
    expected = model(x)  # of one process
    mesh = init_device_mesh(device, (ranks,))
    for block in model:  # the first matrix by columns, the second by rows: an AllReduce each
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-4)
    began = time.perf_counter()
    for _ in range(50):
        y = model(x) + 0  # whose sums are waited for
    if device == "cuda":
        torch.cuda.synchronize()
if rank == 0:
    print(f"{ranks} ranks on {device}: as one process, {(time.perf_counter() - began) / 50 * 1e6:.0f} us for {len(model)} layers")
dist.destroy_process_group()
