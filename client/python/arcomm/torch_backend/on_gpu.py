"""AllReduces of CUDA tensors. One that is asked for with async_op=False is put into the current stream: no event, no other
stream. One with async_op=True goes into a stream of the group's own, behind what is in the current one now, so that what
is put into the current one meanwhile runs beside it; `wait()` makes the then current stream wait, never the host."""

from __future__ import annotations

import ctypes
import datetime
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import abi
from ..communicator import Communicator
from ..errors import ArcommError
from ..library import check, load
from .operations import Reduction
from .options import Options
from .watchdog import Watchdog

_raw_stream = torch._C._cuda_getCurrentRawStream if hasattr(torch._C, "_cuda_getCurrentRawStream") else None
_Event = getattr(torch._C, "_CudaEventBase", None)  # torch.cuda.Event without its Python, which takes longer than CUDA


_MOST_STREAMS = 64  # that are kept: programs have a few, and one that makes them anew each time is served, too
_NO_CODEC = abi.AllReduceConfig(struct_size=ctypes.sizeof(abi.AllReduceConfig))


def _uncoded(send: int, receive: int, count: int, kind: int, op: int, handle: int, stream: int) -> int:
    """arcAllReduce of what a communicator's default codec does not serve."""
    return load().arcAllReduceWith(send, receive, count, kind, op, ctypes.byref(_NO_CODEC), handle, stream)


class InStreamWork(dist._Work):
    """Of an AllReduce that is in the current stream: whatever is put there later comes after it."""

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class SideWork(dist._Work):
    """Of AllReduces in the group's own stream. It keeps the tensors; whoever frees them after `wait()` frees them behind
    the sums, and only where nobody has waited are they recorded as used there, which takes the host longer."""

    def __init__(self, tensors: list[torch.Tensor], ended: Any, on_gpu: OnGpu) -> None:
        super().__init__()
        self._tensors = tensors
        self._ended = ended
        self._on_gpu = on_gpu
        self._future: torch.futures.Future | None = None
        self._is_ordered = False  # some stream waits, or the tensors are recorded

    def __del__(self) -> None:
        if not self._is_ordered and not sys.is_finalizing():
            self._record()

    def _record(self) -> None:
        self._is_ordered = True
        for tensor in self._tensors:
            tensor.record_stream(self._on_gpu.side)

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """The current stream waits. With a timeout the host does, too, so long at most."""
        self._ended.wait(self._on_gpu.current())
        self._is_ordered = True
        if timeout:
            end = time.monotonic() + timeout.total_seconds()
            while not self._ended.query():
                if time.monotonic() > end:
                    raise ArcommError(f"the AllReduce has not ended after {timeout}: see Communicator.check()")
                time.sleep(0.0001)
            self._on_gpu.communicator.check()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._ended.query()

    def is_success(self) -> bool:
        return self._ended.query()

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """Ended already for the host; what waits for it, and callbacks, do so on their streams."""
        if self._future is None:
            self._record()
            self._future = torch.futures.Future(devices=[self._on_gpu.device])
            with torch.cuda.stream(self._on_gpu.side):
                self._ended.wait(self._on_gpu.side)
                self._future.set_result(self._tensors)
        return self._future


class OnGpu:
    """What a group does with tensors of one GPU. Threads: any, one at a time."""

    def __init__(self, communicator: Communicator, device: torch.device, name: str, options: Options) -> None:
        self.communicator = communicator
        self.device = device
        self.index = device.index
        self._handle = communicator.handle().value
        self._put = load().arcAllReduce
        self._put_uncoded = _uncoded if options.asks_for_coding else self._put
        self._side: torch.cuda.Stream | None = None
        self._side_number = 0
        self._fork = _Event()  # what is behind the current stream's work: recorded anew for each
        self._last: int | None = None  # the stream of the last operation, as a number
        self._captured_in: torch.cuda.Stream | None = None  # of the last operation that was captured
        self._streams: dict[int, torch.cuda.Stream] = {}  # by their number, as making one takes longer than the call
        self._in_stream = InStreamWork()
        self._watchdog = Watchdog.of(communicator, name)

    def current(self) -> torch.cuda.Stream:
        number = _raw_stream(self.index)
        stream = self._streams.get(number)
        if stream is None:
            if len(self._streams) == _MOST_STREAMS:
                self._streams.clear()
            stream = self._streams[number] = torch.cuda.current_stream(self.index)
        return stream

    @property
    def side(self) -> torch.cuda.Stream:
        """The group's own stream; there is one once something was put into it."""
        return self._side

    def all_reduce(self, tensors: list[torch.Tensor], reductions: list[Reduction], is_async: bool) -> dist._Work:
        if is_async:
            return self.beside(tensors, reductions)
        for tensor, reduction in zip(tensors, reductions):
            self.in_stream(tensor, reduction)
        return self._in_stream

    def in_stream(self, tensor: torch.Tensor, reduction: Reduction) -> dist._Work:
        """Into the current stream."""
        stream = _raw_stream(self.index)
        if stream != self._last:
            self._order(stream, torch.cuda.current_stream(self.index))
        if tensor.is_contiguous() and reduction.factor is None:
            address = tensor.data_ptr()
            put = self._put if reduction.has_codecs else self._put_uncoded
            check(put(address, address, tensor.numel(), reduction.kind, reduction.op, self._handle, stream))
        else:
            self._reduce(tensor, reduction, stream)
        return self._in_stream

    def _reduce(self, tensor: torch.Tensor, reduction: Reduction, stream: int) -> None:
        """In `stream`, which is current."""
        tensor = tensor.detach()
        if reduction.factor is not None:
            tensor.mul_(reduction.factor)
        dense = tensor if tensor.is_contiguous() else tensor.contiguous()
        address = dense.data_ptr()
        put = self._put if reduction.has_codecs else self._put_uncoded
        check(put(address, address, dense.numel(), reduction.kind, reduction.op, self._handle, stream))
        if dense is not tensor:
            tensor.copy_(dense)

    def beside(self, tensors: list[torch.Tensor], reductions: Sequence[Reduction]) -> SideWork:
        """Into the group's own stream."""
        side = self._side
        if side is None:
            side = self._side = torch.cuda.Stream(self.device, priority=-1)
            self._side_number = side.cuda_stream
        number = self._side_number
        self._fork.record(self.current())
        self._fork.wait(side)
        if number != self._last:
            self._order(number, side)
        for tensor, reduction in zip(tensors, reductions):
            if reduction.factor is None and tensor.is_contiguous():
                address = tensor.data_ptr()
                put = self._put if reduction.has_codecs else self._put_uncoded
                check(put(address, address, tensor.numel(), reduction.kind, reduction.op, self._handle, number))
            else:
                with torch.cuda.stream(side):
                    self._reduce(tensor, reduction, number)
        ended = _Event()
        ended.record(side)
        return SideWork(tensors, ended, self)

    def _order(self, number: int, stream: torch.cuda.Stream) -> None:
        """Eagerly libarclient keeps the order of calls on several streams; in a graph whoever captures has to. `stream`
        is the current one, or has been forked from it."""
        self._last = number
        if not torch.cuda.is_current_stream_capturing():
            return
        before, self._captured_in = self._captured_in, stream
        if before is None or before == stream:
            return
        with torch.cuda.stream(before):
            in_the_same_capture = torch.cuda.is_current_stream_capturing()
        if in_the_same_capture:
            stream.wait_stream(before)

    def close(self) -> None:
        self._watchdog.end()
        torch.cuda.synchronize(self.device)
        self.communicator.close()

    def abort(self) -> None:
        self._watchdog.end()
        self.communicator.abort()
