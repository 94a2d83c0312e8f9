"""torch.distributed's backend "arcomm", for tensors on the CPU: AllReduce through the daemon, the rest by Gloo.

    torch.distributed.init_process_group("arcomm")

The entry point `torch.backends` of the installed package registers it when torch is imported. When a group is formed
all ranks decide together, through its store: where one of them cannot attach to a daemon, or the communicator cannot be
formed, the whole group uses Gloo for everything, and says so once.
"""

from __future__ import annotations

import datetime
import logging
from typing import Any

import torch
import torch.distributed as dist

from . import session
from .abi import RedOp
from .communicator import Communicator, Ticket, unique_id
from .errors import ArcommError

_log = logging.getLogger(__name__)

_OPS = {
    dist.ReduceOp.SUM: RedOp.Sum,
    dist.ReduceOp.AVG: RedOp.Avg,
    dist.ReduceOp.PRODUCT: RedOp.Prod,
    dist.ReduceOp.MIN: RedOp.Min,
    dist.ReduceOp.MAX: RedOp.Max,
}
_TYPES = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.int8, torch.uint8, torch.int32, torch.int64,
}  # fmt: skip


class _Work(dist._Work):
    """AllReduces in flight; one that was not contiguous is copied back when it has ended."""

    def __init__(self, tensors: list[torch.Tensor], pending: list[tuple[Ticket, torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self._tensors = tensors
        self._pending = pending

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        while self._pending:
            ticket, summed, tensor = self._pending[0]
            ticket.wait(timeout.total_seconds() or None)
            if summed is not tensor:
                tensor.copy_(summed)
            self._pending.pop(0)
        return True

    def is_completed(self) -> bool:
        return all(ticket.test() for ticket, _, _ in self._pending)

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """Waits: nothing here runs on a thread of its own."""
        future: torch.futures.Future = torch.futures.Future()
        try:
            self.wait()
            future.set_result(self._tensors)
        except ArcommError as failure:
            future.set_exception(failure)
        return future


class ArcommProcessGroup(dist.ProcessGroup):
    """One rank of a group. What is no AllReduce that the daemon serves goes to `inner`."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._name = ""
        self._inner = dist.ProcessGroupGloo(dist.PrefixStore("inner", store), rank, size, timeout)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._inner)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self.communicator = _agree(dist.PrefixStore("arcomm", store), rank, size, timeout)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        return self._reduce(tensors, opts or dist.AllreduceOptions())

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        return self._reduce(tensors, opts or dist.AllreduceCoalescedOptions())

    def _reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        # Of type and operation alone, which are the same on all ranks, and so is what comes of it.
        op = next((ours for theirs, ours in _OPS.items() if opts.reduceOp == theirs), None)
        if self.communicator is None or op is None or any(tensor.dtype not in _TYPES for tensor in tensors):
            if isinstance(opts, dist.AllreduceCoalescedOptions):
                return self._inner.allreduce_coalesced(tensors, opts)
            return self._inner.allreduce(tensors, opts)
        pending = []
        for tensor in tensors:
            detached = tensor.detach()
            summed = detached if detached.is_contiguous() else detached.contiguous()
            pending.append((self.communicator.all_reduce_async(summed, op=op), summed, detached))
        return _Work(tensors, pending)

    def shutdown(self) -> None:
        if self.communicator is not None:
            self.communicator.close()
            self.communicator = None

    def abort(self) -> None:
        if self.communicator is not None:
            self.communicator.abort()
            self.communicator = None

    def getBackendName(self) -> str:
        return "arcomm"

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name


def _agree(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Communicator | None:
    """The communicator of all ranks, or None on all of them."""
    try:
        session.ensure(timeout.total_seconds())
        said = b"yes"
    except ArcommError as failure:
        said = str(failure).encode() or b"?"
    if not _all_say_yes(store, "attached", rank, size, said):
        return None
    if rank == 0:
        store.set("id", unique_id())
    communicator = None
    try:
        communicator = Communicator(bytes(store.get("id")), rank, size)
        said = b"yes"
    except ArcommError as failure:
        said = str(failure).encode() or b"?"
    if _all_say_yes(store, "formed", rank, size, said):
        return communicator
    if communicator is not None:
        communicator.abort()
    return None


def _all_say_yes(store: dist.Store, question: str, rank: int, size: int, said: bytes) -> bool:
    store.set(f"{question}/{rank}", said)
    answers = [bytes(store.get(f"{question}/{other}")) for other in range(size)]
    refusals = [f"rank {other}: {answer.decode()}" for other, answer in enumerate(answers) if answer != b"yes"]
    if refusals and rank == 0:
        _log.warning("this group's AllReduces are Gloo's, not arcommd's: %s", "; ".join(refusals))
    return not refusals


def register() -> None:
    """Makes the name known to torch.distributed; again does nothing."""
    if "arcomm" not in dist.Backend.backend_list:
        dist.Backend.register_backend("arcomm", ArcommProcessGroup, devices=["cpu"])


def register_at_import() -> None:
    """The entry point: torch is imported whatever this meets."""
    try:
        if dist.is_available():
            register()
    except Exception:  # noqa: BLE001
        _log.exception("the backend arcomm could not be registered")
