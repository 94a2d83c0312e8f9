"""AllReduces of CPU tensors: with async_op=False the call itself sums, so that small ones need nobody but the ranks; by
tickets otherwise."""

from __future__ import annotations

import datetime
import queue
import threading
from typing import Any

import torch
import torch.distributed as dist

from ..communicator import Communicator, Ticket
from ..errors import ArcommError
from .operations import Reduction
from .options import Options

_OPS = ("sum", "prod", "min", "max", "avg")


class HostWork(dist._Work):
    """AllReduces in flight; one that was not contiguous is copied back when it has ended. Threads: any."""

    def __init__(
        self, tensors: list[torch.Tensor], pending: list[tuple[Ticket, torch.Tensor, torch.Tensor]], finisher: Finisher
    ) -> None:
        super().__init__()
        self._tensors = tensors
        self._pending = pending
        self._finisher = finisher
        self._waiting = threading.Lock()  # a ticket is waited for once
        self._failure: ArcommError | None = None
        self._future: torch.futures.Future | None = None

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        seconds = timeout.total_seconds() or None
        if not self._waiting.acquire(timeout=-1 if seconds is None else seconds):
            raise ArcommError(f"the AllReduce has not ended after {seconds} s: wait again")
        try:
            if self._failure is not None:
                raise self._failure
            while self._pending:
                ticket, summed, tensor = self._pending[0]
                ticket.wait(seconds)
                if summed is not tensor:
                    tensor.copy_(summed)
                self._pending.pop(0)
        except ArcommError as failure:
            if self._pending and self._pending[0][0].done:
                self._failure = failure
            raise
        finally:
            self._waiting.release()
        return True

    def is_completed(self) -> bool:
        if not self._waiting.acquire(blocking=False):
            return False
        try:
            return all(ticket.test() for ticket, _, _ in self._pending)
        finally:
            self._waiting.release()

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """Ends when the operations have: nobody waits here."""
        if self._future is None:
            self._future = torch.futures.Future()
            self._finisher.finish(self)
        return self._future

    def tell_future(self) -> None:
        try:
            self.wait()
            self._future.set_result(self._tensors)
        except ArcommError as failure:
            self._future.set_exception(failure)


class Finisher:
    """A thread that waits for works whose futures were asked for, one after the other as they were made."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[HostWork | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def finish(self, work: HostWork) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="arcomm futures", daemon=True)
            self._thread.start()
        self._works.put(work)

    def end(self) -> None:
        """Once what was handed over has ended."""
        if self._thread is not None:
            self._works.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work.tell_future()


class OnHost:
    """What a group does with CPU tensors."""

    def __init__(self, communicator: Communicator, options: Options) -> None:
        self.communicator = communicator
        self._uncoded = "none" if options.asks_for_coding else None
        self._finisher = Finisher()

    def all_reduce(self, tensors: list[torch.Tensor], reductions: list[Reduction], is_async: bool) -> HostWork:
        pending = []
        for tensor, reduction in zip(tensors, reductions):
            detached = tensor.detach()
            if reduction.factor is not None:
                detached.mul_(reduction.factor)
            summed = detached if detached.is_contiguous() else detached.contiguous()
            seen = summed if reduction.view is None else summed.view(reduction.view)
            codec = None if reduction.has_codecs else self._uncoded
            if is_async:
                ticket = self.communicator.all_reduce_async(seen, op=_OPS[reduction.op], codec=codec)
                pending.append((ticket, summed, detached))
            else:
                self.communicator.all_reduce(seen, op=_OPS[reduction.op], codec=codec)
                if summed is not detached:
                    detached.copy_(summed)
        return HostWork(tensors, pending, self._finisher)

    def close(self) -> None:
        self._finisher.end()
        self.communicator.close()

    def abort(self) -> None:
        self.communicator.abort()
        self._finisher.end()
