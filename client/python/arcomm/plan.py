"""An AllReduce that is checked and registered once and started many times."""

from __future__ import annotations

import ctypes
from typing import Any

from . import abi
from .abi import Reason, Result
from .arrays import stream_of
from .communicator import Communicator
from .errors import ArcommError
from .group import keep_until_end
from .library import check, load, milliseconds
from .request import Request


class Plan:
    """Arguments as Communicator.all_reduce's. The arrays are kept while the plan lives. A start meets whatever
    AllReduce the other ranks call or start. After a rebuild the plan is to be made anew."""

    def __init__(
        self,
        comm: Communicator,
        x: Any,
        out: Any = None,
        op: Any = "sum",
        *,
        codec: Any = None,
        least_snr_db: float = 0,
        most_relative_error: float = 0,
    ) -> None:
        self._handle = abi.Handle()
        self._comm = comm
        self._x = x
        self._request = Request(x, out, op, codec, least_snr_db, most_relative_error)
        check(
            load().arcPlanCreateAllReduceWith(
                ctypes.byref(self._handle), *self._request.arguments(), comm.handle()
            )
        )

    def start(self, stream: Any = None) -> None:
        """On the host one start at a time; on GPUs as many as the streams order."""
        keep_until_end(self)
        check(load().arcPlanStart(self._usable(), stream_of(stream, self._x)))

    def wait(self, timeout: float | None = None) -> Any:
        """The array with the result of the last start; on the host alone. timeout: in seconds."""
        check(load().arcPlanWait(self._usable(), milliseconds(timeout)))
        return self._request.result

    def close(self) -> None:
        """Fails while a start has not been waited for. Once more does nothing."""
        if self._handle.value:
            check(load().arcPlanDestroy(self._handle))
            self._handle = abi.Handle()

    def _usable(self) -> abi.Handle:
        if not self._handle.value:
            raise ArcommError("the plan is closed", Result.FailedPrecondition, Reason.UnknownHandle)
        return self._handle

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.close()
        except ArcommError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        return f"arcomm.Plan({self._request.send.count} x {self._request.send.kind.name.lower()})"
