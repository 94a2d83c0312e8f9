"""What DLPack tells of an array. Layouts are those of dlpack.h, versions 0 and 1."""

from __future__ import annotations

import ctypes
from typing import Any

from .errors import ArcommError

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3  # DLDeviceType
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}  # DLDataTypeCode
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer.restype = ctypes.c_void_p
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid.restype = ctypes.c_int


class Borrowed:
    """A capsule that is read and never consumed: when it goes, its own destructor gives the array back."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule
        self.read_only = False
        if _is_valid(capsule, b"dltensor_versioned"):
            managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
            self.read_only = bool(managed.flags & _READ_ONLY)
            self.tensor = managed.tensor
        else:
            self.tensor = Tensor.from_address(_pointer(capsule, b"dltensor"))


def borrow(array: Any, name: str) -> Borrowed:
    """Raises ArcommError where the array does not export itself."""
    try:
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:  # of before versions
            capsule = array.__dlpack__()
    except (BufferError, RuntimeError, ValueError) as failure:
        raise ArcommError(f"{name} lends no memory by DLPack: {failure}") from None
    return Borrowed(capsule)


def type_name(tensor: Tensor, name: str) -> str:
    """ "float32", say."""
    if tensor.lanes != 1 or tensor.code not in _CODES:
        raise ArcommError(f"elements of {name} have DLPack's type {tensor.code} with {tensor.lanes} lanes: not served")
    return f"{_CODES[tensor.code]}{tensor.bits}"


def on_gpu(tensor: Tensor, name: str) -> bool:
    """Raises ArcommError where it is neither in a GPU's memory nor in the host's."""
    if tensor.device_type not in (_CPU, _CUDA, _CUDA_HOST):
        raise ArcommError(f"{name} is on DLPack's device {tensor.device_type}: arrays are on the host or a CUDA GPU")
    return tensor.device_type == _CUDA
