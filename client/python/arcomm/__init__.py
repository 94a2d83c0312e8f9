"""arcomm: collective communication through the node's arcommd daemon.

    import arcomm, numpy

    unique_id = arcomm.unique_id()                       # on one rank; hand it to the others by any means
    with arcomm.Communicator(unique_id, rank, ranks) as comm:
        x = arcomm.empty(1024, "float32")                # memory that the daemon shares: nothing is copied
        comm.all_reduce(x)                               # in place; the same bits on every rank

Arrays are numpy's, torch's, whatever has the buffer protocol, DLPack or `__cuda_array_interface__`. Every failure is
an ArcommError. Any function may be called from any thread; each lets go of the interpreter's lock while it waits.
"""

from .abi import Codec, DataType, Reason, RedOp, Result
from .communicator import Communicator, Ticket, unique_id
from .errors import ArcommError
from .group import Group
from .memory import empty
from .plan import Plan
from .session import finalize, init, version

__all__ = [
    "ArcommError",
    "Codec",
    "Communicator",
    "DataType",
    "Group",
    "Plan",
    "Reason",
    "RedOp",
    "Result",
    "Ticket",
    "empty",
    "finalize",
    "init",
    "unique_id",
    "version",
]
