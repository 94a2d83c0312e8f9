"""The process group "arcomm". AllReduces that arcommd has go through the daemon; everything else to a group of NCCL's for
CUDA tensors and one of Gloo's for others.

When a group is formed all ranks decide together whether it is for CUDA or for CPU tensors: a process attaches to one
device of the daemon's. The communicator for CUDA tensors is formed at their first AllReduce, on the tensor's GPU, or at
once where init_process_group is given its device_id.
"""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ArcommError
from .agreement import Agreement
from .on_gpu import OnGpu
from .on_host import OnHost
from .operations import reduction_of
from .options import Options

_SUM = dist.ReduceOp.SUM
_GLOO, _NCCL = dist.ProcessGroup.BackendType.GLOO, dist.ProcessGroup.BackendType.NCCL


def create(options: Any, backend_options: Any = None) -> ArcommProcessGroup:
    """What torch.distributed calls, with c10d's DistributedBackendOptions. backend_options: Options, or NCCL's."""
    return ArcommProcessGroup(
        options.store, options.group_rank, options.group_size, options.timeout, backend_options
    )  # fmt: skip


class ArcommProcessGroup(dist.ProcessGroup):
    """One rank of a group."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta, pg_options: Any = None
    ) -> None:
        super().__init__(rank, size)
        self._store = store
        self._timeout = timeout
        self._name = ""
        self._description = ""
        self._options = Options.of(pg_options)
        self._sums: dict[torch.dtype, Any] = {}
        self._on_host: OnHost | None = None
        self._on_gpu: OnGpu | None = None
        self._inner = dist.ProcessGroup(store, rank, size)
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("inner", store), rank, size, timeout)
        self._nccl = _nccl_group(dist.PrefixStore("inner_cuda", store), rank, size, timeout, self._options.nccl)
        for group in (self, self._inner):
            group._register_backend(torch.device("cpu"), _GLOO, self._gloo)
            if self._nccl is not None:
                group._register_backend(torch.device("cuda"), _NCCL, self._nccl)
            group._set_default_backend(_GLOO if self._nccl is None else _NCCL)
        self._agreement = Agreement(dist.PrefixStore("arcomm", store), rank, size)
        self.attached_to = self._agreement.device(timeout.total_seconds())
        self._may_form_on_gpu = self.attached_to == "gpu"
        if self.attached_to == "host":
            communicator = self._agreement.communicator("cpu", self._options)
            self._on_host = None if communicator is None else OnHost(communicator, self._options)

    @property
    def communicator(self) -> Any:
        """arcomm's, or None where the group has none (yet)."""
        served = self._on_gpu or self._on_host
        return None if served is None else served.communicator

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        on_gpu = self._on_gpu
        if on_gpu is not None and opts is not None and len(tensors) == 1 and opts.reduceOp == _SUM:
            # The way of a decoding step, where every microsecond counts.
            tensor = tensors[0]
            reduction = self._sums.get(tensor.dtype)
            if reduction is not None and tensor.get_device() == on_gpu.index:
                return on_gpu.beside(tensors, (reduction,)) if opts.asyncOp else on_gpu.in_stream(tensor, reduction)
        return self._reduce(tensors, opts or dist.AllreduceOptions(), self._inner.allreduce)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        return self._reduce(tensors, opts or dist.AllreduceCoalescedOptions(), self._inner.allreduce_coalesced)

    def _reduce(self, tensors: list[torch.Tensor], opts: Any, inner: Any) -> Any:
        served = self._served(tensors)
        if served is None:
            return inner(tensors, opts)
        reductions = [reduction_of(tensor.dtype, opts.reduceOp) for tensor in tensors]
        if any(reduction is None for reduction in reductions):
            return inner(tensors, opts)
        return served.all_reduce(tensors, reductions, getattr(opts, "asyncOp", True))

    def _served(self, tensors: list[torch.Tensor]) -> OnGpu | OnHost | None:
        """By whom, or None: by an inner group. Of what is alike on all ranks alone."""
        if not tensors[0].is_cuda:
            return self._on_host if tensors[0].device.type == "cpu" else None
        self.connect(tensors[0].device)
        on_gpu = self._on_gpu
        if on_gpu is not None and any(tensor.device != on_gpu.device for tensor in tensors):
            raise ArcommError(
                f"a tensor is on {next(t.device for t in tensors if t.device != on_gpu.device)}, and this rank of group "
                f"{self._name} on {on_gpu.device}: a rank keeps to one GPU"
            )
        return on_gpu

    def _form_on_gpu(self, device: torch.device) -> None:
        with torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                raise ArcommError(
                    "a group's first AllReduce of a CUDA tensor forms its communicator, which no graph can capture: make "
                    "one before, or give init_process_group the device_id"
                )
            torch.empty(1, device=device)  # the context that the rank is on
            communicator = self._agreement.communicator("cuda", self._options)
        self._may_form_on_gpu = False
        if communicator is not None:
            self._on_gpu = OnGpu(communicator, torch.device("cuda", device.index), self._name or "default", self._options)
            kinds = ((dtype, reduction_of(dtype, _SUM)) for dtype in _dtypes())
            self._sums = {dtype: reduction for dtype, reduction in kinds if reduction is not None}

    def barrier(self, opts: Any = None) -> Any:
        """Of the ranks, and of what they have put into their current streams."""
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()
        if self._on_gpu is not None:
            self._on_gpu.communicator.check()
        plain = dist.BarrierOptions()
        if opts is not None:
            plain.timeout = opts.timeout
        return self._gloo.barrier(plain)

    def _get_backend(self, device: Any) -> Any:
        backend = super()._get_backend(device)
        return _Nccl(backend, self) if backend is self._nccl else backend

    def connect(self, device: torch.device) -> None:
        """Forms the communicator of the ranks' GPUs now, where the group may have one and has none."""
        if self._may_form_on_gpu and self._on_gpu is None:
            self._form_on_gpu(device)

    def split_group(
        self, ranks: list[int], timeout: datetime.timedelta | None = None, opts: Any = None,
        group_name: str | None = None, group_desc: str | None = None, **_: Any,
    ) -> ArcommProcessGroup | None:  # fmt: skip
        """For torch.distributed.split_group: a group of some of these ranks, or None on the others."""
        if self.rank() not in ranks:
            return None
        store = dist.PrefixStore(f"{group_name or ranks}/", self._store)
        made = ArcommProcessGroup(store, ranks.index(self.rank()), len(ranks), timeout or self._timeout, opts)
        made.setGroupName(group_name or "")
        made.setGroupDesc(group_desc or "")
        return made

    def get_group_store(self) -> dist.Store:
        return self._store

    def shutdown(self) -> None:
        self._leave("close", "shutdown")

    def abort(self) -> None:
        self._leave("abort", "abort")

    def _leave(self, ours: str, theirs: str) -> None:
        self._may_form_on_gpu = False
        on_gpu, self._on_gpu = self._on_gpu, None
        on_host, self._on_host = self._on_host, None
        for served in (on_gpu, on_host):
            if served is not None:
                getattr(served, ours)()
        if self._nccl is not None:
            getattr(self._nccl, theirs, self._nccl.abort)()

    def getBackendName(self) -> str:
        return "arcomm"

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description


# What goes to the inner group as it is, under the names of whichever version. Not by inheritance: the base class of a
# Python group is called with the interpreter's lock held (torch 2.15), for which Gloo's threads may wait meanwhile.
_FORWARDED = """broadcast reduce gather scatter gather_single gather_into_tensor
    allgather _allgather_base allgather_coalesced allgather_into_tensor_coalesced all_gather_single all_gather_single_coalesced
    reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced reduce_scatter_single reduce_scatter_single_coalesced
    alltoall alltoall_base all_to_all_single send recv recv_anysource monitored_barrier""".split()


def _forwarded(name: str) -> Any:
    def call(self: ArcommProcessGroup, *arguments: Any, **named: Any) -> Any:
        return getattr(self._inner, name)(*arguments, **named)

    call.__name__ = name
    return call


for _name in _FORWARDED:
    if hasattr(dist.ProcessGroup, _name):
        setattr(ArcommProcessGroup, _name, _forwarded(_name))


class _Nccl:
    """NCCL's backend as torch.distributed's Python sees it. What is connected early, where init_process_group has a
    device_id, is arcomm's communicator; NCCL's own is made when it is first used, and nobody splits it."""

    supports_splitting = True

    def __init__(self, backend: Any, group: ArcommProcessGroup) -> None:
        self._backend = backend
        self._group = group

    def eager_connect_single_device(self, device: torch.device) -> None:
        self._group.connect(device)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Groups are formed by their members alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def _nccl_group(
    store: dist.Store, rank: int, size: int, timeout: datetime.timedelta, options: Any
) -> Any:
    """It connects when it is first used."""
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        return None
    options = dist.ProcessGroupNCCL.Options() if options is None else options
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _dtypes() -> list[torch.dtype]:
    return [getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")]
