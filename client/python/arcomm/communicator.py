"""Ranks that reduce together."""

from __future__ import annotations

import ctypes
import sys
import warnings
from typing import Any

from . import abi, session
from .abi import Reason, Result
from .arrays import stream_of, tensor_in_place
from .errors import ArcommError
from .group import keep_until_end
from .library import check, load, milliseconds
from .request import OPS, Request, checked_sms, coding_of


def unique_id() -> bytes:
    """Names one communicator to be: made on one rank and handed to all, by any means. Attaches to nothing."""
    made = abi.UniqueId()
    check(load().arcGetUniqueId(ctypes.byref(made)))
    return ctypes.string_at(ctypes.byref(made), abi.UNIQUE_ID_BYTES)


class Ticket:
    """An operation in flight, which is waited for, or tested until it is done, once. Its arrays are the operation's
    until then, and kept."""

    def __init__(self, number: int, request: Request, open_tickets: dict[int, Request]) -> None:
        self._number = number
        self._result = request.result
        self._kept = open_tickets  # keeps the arrays, also where nobody waits for this ticket
        self._kept[number] = request
        self._ended = False
        self._failure: ArcommError | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended; asks nobody."""
        return self._ended

    def test(self) -> bool:
        """Whether it has ended. Raises what it failed with."""
        if not self._ended:
            result = load().arcTest(self._number)
            if result == Result.InProgress:
                return False
            self._end(result)
        return self._told()

    def wait(self, timeout: float | None = None) -> Any:
        """The array with the result. timeout: in seconds; default the operation's own deadline. An ArcommError with
        reason Timeout and no seq is this wait's end, not the operation's: wait again."""
        if not self._ended:
            result = load().arcWait(self._number, milliseconds(timeout))
            self._end(result)
        self._told()
        return self._result

    def _end(self, result: int) -> None:
        try:
            check(result)
        except ArcommError as failure:
            if failure.reason == Reason.Timeout and failure.seq is None:
                raise
            self._failure = failure
        self._ended = True
        self._kept.pop(self._number, None)

    def _told(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return True

    def __repr__(self) -> str:
        return f"arcomm.Ticket({self._number}, {'done' if self.done else 'in flight'})"


class Communicator:
    """One rank of `ranks`. Making it blocks until all of them have, or the timeout.

    Args:
        unique_id: of unique_id(), the same on every rank.
        rank, ranks: 0 <= rank < ranks <= 64; on GPUs at most 8, each on the GPU that is current in its thread.
        codec: what AllReduces that name none are rounded by: "fp8", "q8", "q6", "q4", "q8_rotated", ... It changes
            the result, within the bounds that arclient.h publishes. The same on every rank.
        least_snr_db, most_relative_error: error classes in the place of a codec.
        most_sms: on GPUs its kernels fill so many SMs of each at most, 0: as many as pay; the same on every rank.

    As a context manager it leaves when the block ends, and is aborted on all ranks where the block raises.
    Threads: any; calls are ordered as they are made, and all ranks make the same ones in the same order.
    """

    def __init__(
        self,
        unique_id: bytes,
        rank: int,
        ranks: int,
        *,
        codec: Any = None,
        least_snr_db: float = 0,
        most_relative_error: float = 0,
        most_sms: int = 0,
    ) -> None:
        self._handle = abi.Handle()
        self._tickets: dict[int, Request] = {}
        self.rank = rank
        self.ranks = ranks
        if len(unique_id) != abi.UNIQUE_ID_BYTES:
            raise ArcommError(f"unique_id has {len(unique_id)} bytes: arcomm.unique_id() makes {abi.UNIQUE_ID_BYTES}")
        most_sms = checked_sms(most_sms)
        session.ensure()
        coding = coding_of(codec, least_snr_db, most_relative_error)
        config = abi.CommConfig(
            struct_size=ctypes.sizeof(abi.CommConfig),
            all_reduce=None if coding is None else ctypes.pointer(coding),
            most_sms=most_sms,
        )
        identity = abi.UniqueId.from_buffer_copy(unique_id)
        keep_until_end(self, config, coding)  # a group writes the handle when it ends
        check(load().arcCommInitRankConfig(ctypes.byref(self._handle), ranks, identity, rank, ctypes.byref(config)))

    def all_reduce(
        self,
        x: Any,
        out: Any = None,
        op: Any = "sum",
        stream: Any = None,
        *,
        codec: Any = None,
        least_snr_db: float = 0,
        most_relative_error: float = 0,
    ) -> Any:
        """out[i] = op over all ranks of x[i]; the same bits on every rank.

        Args:
            x: a contiguous array of float16, bfloat16, float32, float64, or (u)int8, 32 or 64, of the same number of
                elements on every rank. Its shape is not looked at.
            out: an array like it, which it does not overlap; default x, in place.
            op: "sum", "prod", "min", "max" or "avg".
            stream: on GPUs where the operation is put, and may be captured; default the current one of x's library.
                The call returns when it is there, and check() tells how it went.
            codec, least_snr_db, most_relative_error: as the communicator's, for this call; "none" is no codec.

        Returns out. On the host it blocks until the result is there.
        """
        if out is None and stream is None and codec is None and not least_snr_db and not most_relative_error:
            number, place = OPS.get(op), tensor_in_place(x)
            if number is not None and place is not None:
                address, count, kind, current = place
                keep_until_end(x)
                handle = self._handle or self.handle()
                result = load().arcAllReduce(address, address, count, kind, number, handle, current)
                if result:
                    check(result)
                return x
        request = Request(x, out, op, codec, least_snr_db, most_relative_error)
        keep_until_end(request)
        check(load().arcAllReduceWith(*request.arguments(), self.handle(), stream_of(stream, x)))
        return request.result

    def all_reduce_async(
        self,
        x: Any,
        out: Any = None,
        op: Any = "sum",
        *,
        codec: Any = None,
        least_snr_db: float = 0,
        most_relative_error: float = 0,
    ) -> Ticket:
        """As all_reduce, on the host alone; returns once it is submitted."""
        request = Request(x, out, op, codec, least_snr_db, most_relative_error)
        number = abi.Ticket()
        keep_until_end(request)
        arguments = request.arguments()
        check(load().arcAllReduceAsyncWith(*arguments, self.handle(), None, ctypes.byref(number)))
        return Ticket(number.value, request, self._tickets)

    def check(self) -> None:
        """Raises what ended the communicator, whoever noticed. On GPUs: after a stream was synchronized, before the
        results are used."""
        state = ctypes.c_int()
        check(load().arcCommGetAsyncError(self.handle(), ctypes.byref(state)))
        check(state.value)

    @property
    def epoch(self) -> int:
        """How often it has been formed."""
        epoch = ctypes.c_uint64()
        check(load().arcCommGetEpoch(self.handle(), ctypes.byref(epoch)))
        return epoch.value

    def rebuild(self) -> None:
        """After a failure: forms it again, with the same ranks; all of them call it. Plans are to be made anew."""
        check(load().arcCommRebuild(self.handle()))
        self._tickets.clear()

    def close(self) -> None:
        """Waits for this rank's operations and leaves; the other ranks' later ones fail. Once more does nothing."""
        self._leave(load().arcCommDestroy)

    def abort(self) -> None:
        """Ends it on all ranks at once, with what is in flight."""
        self._leave(load().arcCommAbort)

    def _leave(self, how: Any) -> None:
        if self._handle.value:
            handle, self._handle = self._handle, abi.Handle()
            keep_until_end(handle, *self._tickets.values())
            check(how(handle))
            self._tickets.clear()

    def handle(self) -> abi.Handle:
        """The C library's, for calls that this package does not make. Raises where there is none."""
        if not self._handle.value:
            raise ArcommError(
                "the communicator is closed, or its group has not ended", Result.FailedPrecondition, Reason.UnknownHandle
            )
        return self._handle

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            try:
                self.abort()
            except ArcommError:
                pass  # what was raised in the block says more

    def __del__(self) -> None:
        # At the interpreter's end the daemon sees the process go, and tells the other ranks.
        if getattr(self, "_handle", None) and not sys.is_finalizing():
            warnings.warn(f"{self!r} was never closed: it is aborted", ResourceWarning, stacklevel=2)
            load().arcCommAbort(self._handle)

    def __repr__(self) -> str:
        state = "" if self._handle.value else ", closed"
        return f"arcomm.Communicator(rank {self.rank} of {self.ranks}{state})"
