"""The one exception of this package, and the check that raises it."""

from __future__ import annotations

import ctypes

from . import abi
from .abi import Reason, Result


class ArcommError(RuntimeError):
    """A call that failed.

    Attributes:
        code: what kind of failure, as gRPC numbers them.
        reason: what it was; arclient.h says of each what to do next.
        rank: the rank that caused it, or None.
        seq: the number of the operation that failed, or None.
        message: what, where and what to do, in the library's words.
    """

    def __init__(
        self,
        message: str,
        code: Result = Result.InvalidArgument,
        reason: Reason = Reason.BadValue,
        rank: int | None = None,
        seq: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.rank = rank
        self.seq = seq

    def __reduce__(self):
        return type(self), (self.message, self.code, self.reason, self.rank, self.seq)


def _known(kind, value, other):
    try:
        return kind(value)
    except ValueError:  # a newer library's
        return other


def last_error(library: ctypes.CDLL, result: int) -> ArcommError:
    """This thread's last failure, which `result` told of."""
    info = abi.ErrorInfo(struct_size=ctypes.sizeof(abi.ErrorInfo))
    library.arcGetLastErrorInfo(ctypes.byref(info))
    return ArcommError(
        info.message.decode(errors="replace") or library.arcGetErrorString(result).decode(),
        _known(Result, result, Result.Unknown),
        _known(Reason, info.reason, Reason.NONE),
        info.rank if info.rank >= 0 else None,
        info.seq if info.seq != 2**64 - 1 else None,
    )
