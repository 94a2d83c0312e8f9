"""What an AllReduce asks for, in the order of the C call's arguments."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from . import abi, session
from .abi import Codec, RedOp
from .arrays import Elements, elements_of
from .errors import ArcommError

OPS = {op.name.lower(): op for op in RedOp}
# "q8_rotated" is Codec.Q8Rotated.
_CODECS = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", codec.name).lower(): codec for codec in Codec}


def _named(kind: Any, names: dict[str, Any], value: Any, what: str) -> int:
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value.lower() in names:
        return names[value.lower()]
    raise ArcommError(f"{what} is {value!r}: it is one of {', '.join(names)}")


def coding_of(codec: Any, least_snr_db: float, most_relative_error: float) -> abi.AllReduceConfig | None:
    """None where nothing is asked for, so that the communicator's default holds. "none" asks for no codec."""
    if codec is None and not least_snr_db and not most_relative_error:
        return None
    return abi.AllReduceConfig(
        struct_size=ctypes.sizeof(abi.AllReduceConfig),
        codec=Codec.NONE if codec is None else _named(Codec, _CODECS, codec, "codec"),
        least_snr_db=least_snr_db,
        most_relative_error=most_relative_error,
    )


def checked_sms(most_sms: Any) -> int:
    """How many SMs of each GPU a communicator's kernels may fill; 0: as many as pay."""
    if not isinstance(most_sms, int) or not 0 <= most_sms < 2**32:
        raise ArcommError(f"most_sms is {most_sms!r}: it is a number of SMs, or 0 for as many as pay")
    return most_sms


class Request:
    """Send and receive extents, type, operation and codec, checked. Keeps both arrays while it lives."""

    def __init__(
        self, x: Any, out: Any, op: Any, codec: Any, least_snr_db: float, most_relative_error: float
    ) -> None:
        self.result = x if out is None else out
        self.send = elements_of(x, "x")
        self.receive: Elements = self.send if out is None else elements_of(out, "out")
        if self.receive.read_only:
            raise ArcommError(
                "x is read-only, and without `out` the result is written to it" if out is None else "out is read-only"
            )
        if (self.send.count, self.send.kind) != (self.receive.count, self.receive.kind):
            raise ArcommError(
                f"x has {self.send.count} elements of {self.send.kind.name.lower()} and out {self.receive.count} of "
                f"{self.receive.kind.name.lower()}: they must be alike"
            )
        for elements, name in ((self.send, "x"), (self.receive, "out")):
            if elements.on_gpu != session.on_gpu():
                raise ArcommError(
                    f"{name} is in {'a GPU' if elements.on_gpu else 'the host'}'s memory, and this process is attached "
                    f"to the daemon's {'GPUs' if session.on_gpu() else 'host backend'}: see init(device=...)"
                )
        self.op = _named(RedOp, OPS, op, "op")
        self.coding = coding_of(codec, least_snr_db, most_relative_error)

    def arguments(self) -> tuple[Any, ...]:
        """send, recv, count, dtype, op, config."""
        return (
            self.send.address,
            self.receive.address,
            self.send.count,
            self.send.kind,
            self.op,
            None if self.coding is None else ctypes.byref(self.coding),
        )
