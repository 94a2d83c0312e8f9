"""The C ABI of libarclient as ctypes sees it: constants, structs and signatures of arclient.h, and nothing else.

A test compares every line of it with the header. Names are the header's without their prefix.
"""

import ctypes
import enum
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

VERSION = 100  # ARC_VERSION_CODE: major * 10000 + minor * 100 + patch
UNIQUE_ID_BYTES = 128


class Result(enum.IntEnum):
    """arcResult_t: how a call ended (gRPC's canonical numbers)."""

    Success = 0
    Cancelled = 1
    Unknown = 2
    InvalidArgument = 3
    DeadlineExceeded = 4
    NotFound = 5
    AlreadyExists = 6
    PermissionDenied = 7
    ResourceExhausted = 8
    FailedPrecondition = 9
    Aborted = 10
    OutOfRange = 11
    Unimplemented = 12
    Internal = 13
    Unavailable = 14
    DataLoss = 15
    Unauthenticated = 16
    InProgress = 100


class Reason(enum.IntEnum):
    """arcReason_t: what it was; arclient.h says of each what to do next."""

    NONE = 0
    BadValue = 1
    OutOfBounds = 2
    UnknownHandle = 3
    Mismatch = 4
    Timeout = 5
    RemoteDied = 6
    RemoteAborted = 7
    Revoked = 8
    Crossed = 9
    Quota = 10
    ShuttingDown = 11
    DaemonLost = 12
    NotRunning = 13
    Forked = 14
    Permission = 15
    Version = 16
    Quarantined = 17
    OutOfMemory = 18
    BadConfig = 19
    Corrupt = 20
    Unsupported = 21
    Bug = 22
    Reordered = 23


class DataType(enum.IntEnum):
    """arcDataType_t: the types that elements may have."""

    Float16 = 0
    Bfloat16 = 1
    Float32 = 2
    Float64 = 3
    Int8 = 4
    Uint8 = 5
    Int32 = 6
    Uint32 = 7
    Int64 = 8
    Uint64 = 9


class RedOp(enum.IntEnum):
    """arcRedOp_t: what is done with the ranks' elements."""

    Sum = 0
    Prod = 1
    Min = 2
    Max = 3
    Avg = 4


class Codec(enum.IntEnum):
    """arcCodec_t: what elements are rounded to before they are summed."""

    NONE = 0
    Fp8 = 1
    Q8 = 2
    Q6 = 3
    Q4 = 4
    Q8Rotated = 5
    Q6Rotated = 6
    Q4Rotated = 7


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", c_char * UNIQUE_ID_BYTES)]


class Config(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("runtime_dir", c_char_p),
        ("device", c_char_p),
        ("timeout_ms", c_uint64),
    ]


class AllReduceConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("codec", c_int),
        ("reserved", c_uint32),
        ("least_snr_db", c_double),
        ("most_relative_error", c_double),
    ]


class CommConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("all_reduce", POINTER(AllReduceConfig)),
        ("most_sms", c_uint32),
        ("reserved", c_uint32),
    ]


class ErrorInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("code", c_int),
        ("reason", c_int),
        ("rank", c_int),
        ("seq", c_uint64),
        ("message", c_char * 512),
    ]


# By the name of each type in the header.
STRUCTS = {
    "arcUniqueId": UniqueId,
    "arcConfig_t": Config,
    "arcAllReduceConfig_t": AllReduceConfig,
    "arcCommConfig_t": CommConfig,
    "arcErrorInfo_t": ErrorInfo,
}
ENUMS = {
    "arcResult_t": Result,
    "arcReason_t": Reason,
    "arcDataType_t": DataType,
    "arcRedOp_t": RedOp,
    "arcCodec_t": Codec,
}

# Handles: arcComm_t, arcPlan_t and arcStream_t are pointers, arcTicket_t a number.
Handle = c_void_p
Ticket = c_uint64

_ELEMENTS = [c_void_p, c_void_p, c_size_t, c_int, c_int]  # send, recv, count, dtype, op
_WITH = [POINTER(AllReduceConfig)]

# Each function's result and arguments.
FUNCTIONS = {
    "arcInit": (c_int, [POINTER(Config)]),
    "arcFinalize": (c_int, []),
    "arcGetVersion": (c_int, [POINTER(c_int)]),
    "arcGetErrorString": (c_char_p, [c_int]),
    "arcGetReasonString": (c_char_p, [c_int]),
    "arcGetLastError": (c_char_p, [Handle]),
    "arcGetLastErrorInfo": (c_int, [POINTER(ErrorInfo)]),
    "arcGetUniqueId": (c_int, [POINTER(UniqueId)]),
    "arcCommInitRank": (c_int, [POINTER(Handle), c_int, UniqueId, c_int]),
    "arcCommInitRankConfig": (c_int, [POINTER(Handle), c_int, UniqueId, c_int, POINTER(CommConfig)]),
    "arcCommDestroy": (c_int, [Handle]),
    "arcCommAbort": (c_int, [Handle]),
    "arcCommRebuild": (c_int, [Handle]),
    "arcCommCount": (c_int, [Handle, POINTER(c_int)]),
    "arcCommUserRank": (c_int, [Handle, POINTER(c_int)]),
    "arcCommGetEpoch": (c_int, [Handle, POINTER(c_uint64)]),
    "arcCommGetAsyncError": (c_int, [Handle, POINTER(c_int)]),
    "arcMemAlloc": (c_int, [POINTER(c_void_p), c_size_t]),
    "arcMemFree": (c_int, [c_void_p]),
    "arcMemRegister": (c_int, [c_void_p, c_size_t]),
    "arcMemDeregister": (c_int, [c_void_p]),
    "arcAllReduce": (c_int, [*_ELEMENTS, Handle, c_void_p]),
    "arcAllReduceWith": (c_int, [*_ELEMENTS, *_WITH, Handle, c_void_p]),
    "arcCommGetCodec": (c_int, [Handle, c_size_t, c_int, c_int, *_WITH, POINTER(c_int)]),
    "arcAllReduceAsync": (c_int, [*_ELEMENTS, Handle, c_void_p, POINTER(Ticket)]),
    "arcAllReduceAsyncWith": (c_int, [*_ELEMENTS, *_WITH, Handle, c_void_p, POINTER(Ticket)]),
    "arcTest": (c_int, [Ticket]),
    "arcWait": (c_int, [Ticket, c_uint64]),
    "arcPlanCreateAllReduce": (c_int, [POINTER(Handle), *_ELEMENTS, Handle]),
    "arcPlanCreateAllReduceWith": (c_int, [POINTER(Handle), *_ELEMENTS, *_WITH, Handle]),
    "arcPlanStart": (c_int, [Handle, c_void_p]),
    "arcPlanWait": (c_int, [Handle, c_uint64]),
    "arcPlanDestroy": (c_int, [Handle]),
    "arcGroupStart": (c_int, []),
    "arcGroupEnd": (c_int, []),
}
