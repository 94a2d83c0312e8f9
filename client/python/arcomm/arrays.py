"""Where the elements of an array are: of numpy's, torch's, and whatever has the buffer protocol, DLPack or
`__cuda_array_interface__`. Nothing is imported for it, and nothing copied."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from . import dlpack, session
from .abi import DataType
from .errors import ArcommError

_BY_NAME = {kind.name.lower(): kind for kind in DataType}
_KNOWN: dict[Any, DataType] = {}  # of what has been asked before: a call's time is a concern
_torch: Any = None  # the module, once somebody has imported it
_SIZES = {DataType.Float16: 2, DataType.Bfloat16: 2, DataType.Float32: 4, DataType.Float64: 8}


def size_of(kind: DataType) -> int:
    """Bytes of one element."""
    return _SIZES.get(kind) or int("".join(filter(str.isdigit, kind.name))) // 8


def data_type(name: Any) -> DataType:
    """Of "float32", numpy.float32, torch.float32, numpy.dtype("float32"), DataType.Float32."""
    known = _KNOWN.get(name)
    if known is not None:
        return known
    if isinstance(name, DataType):
        return name
    text = name if isinstance(name, str) else getattr(name, "name", None) or getattr(name, "__name__", None) or str(name)
    kind = _BY_NAME.get(text.rpartition(".")[2].lower())
    if kind is None:
        raise ArcommError(f"elements of type {text} are not served: the types are {', '.join(_BY_NAME)}")
    _KNOWN[name] = kind
    return kind


@dataclass
class Elements:
    """What a call is given of an array. Whoever needs the elements after the call keeps `owner`."""

    address: int
    count: int
    kind: DataType
    on_gpu: bool
    read_only: bool
    owner: Any  # keeps the memory while it lives


def elements_of(array: Any, name: str = "x") -> Elements:
    """Raises ArcommError where the elements are not one behind the other, or of a type that is not served."""
    if hasattr(array, "data_ptr") and hasattr(array, "is_contiguous"):
        return _of_tensor(array, name)
    on_gpu = getattr(array, "__cuda_array_interface__", None)
    if on_gpu is not None:
        return _of_interface(array, on_gpu, name, on_gpu=True)
    if getattr(getattr(array, "dtype", None), "name", None) == "bfloat16" and hasattr(array, "__array_interface__"):
        # numpy has no letter for it, so that the buffer protocol refuses.
        return _of_interface(array, array.__array_interface__, name, on_gpu=False)
    try:
        return _of_buffer(array, name)
    except TypeError:
        pass
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array, name)
    raise ArcommError(
        f"{name} is a {type(array).__name__}: an array is numpy's, torch's, or has the buffer protocol, DLPack or "
        "__cuda_array_interface__"
    )


def tensor_in_place(x: Any) -> tuple[int, int, DataType, int | None] | None:
    """Address, count, type and current stream of a plain torch tensor that can be summed as it is, within a microsecond;
    None for anything else, which elements_of looks at."""
    global _torch
    if _torch is None:
        _torch = sys.modules.get("torch")
    if _torch is None or type(x) is not _torch.Tensor:
        return None
    kind = _KNOWN.get(x.dtype)
    if kind is None or not x.is_contiguous():
        return None
    if not session.on_gpu():
        return (x.data_ptr(), x.numel(), kind, None) if x.is_cpu else None
    if not x.is_cuda:
        return None
    return x.data_ptr(), x.numel(), kind, _torch._C._cuda_getCurrentRawStream(x.get_device())


def stream_of(stream: Any, array: Any) -> int | None:
    """The handle of a number, torch's or cupy's stream, or whatever has `__cuda_stream__`. None is the stream that the
    array's library is at work on, and the legacy default one where it has none to tell."""
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(array, torch.Tensor) or not array.is_cuda:
            return None
        # What torch.cuda.current_stream() is made of, without the object: a tenth of its time.
        return torch._C._cuda_getCurrentRawStream(array.get_device()) or None
    if isinstance(stream, int):
        return stream or None
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1] or None
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return getattr(stream, name) or None
    raise ArcommError(f"stream is a {type(stream).__name__}: it is a cudaStream_t as a number, or a stream object")


def _not_contiguous(name: str) -> ArcommError:
    return ArcommError(f"{name} is not contiguous: its elements must lie one behind the other; pass a copy")


def _of_tensor(tensor: Any, name: str) -> Elements:
    device = tensor.device.type
    if device not in ("cpu", "cuda"):
        raise ArcommError(f"{name} is on device {device}: tensors are on cpu or cuda")
    if not tensor.is_contiguous():
        raise _not_contiguous(name)
    return Elements(tensor.data_ptr(), tensor.numel(), data_type(tensor.dtype), device == "cuda", False, tensor)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, size: int) -> bool:
    if strides is None or 0 in shape:
        return True
    expected = size
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _kind_of(array: Any, typestr: str, name: str) -> DataType:
    if typestr[0] == ">":
        raise ArcommError(f"{name} has elements in the other byte order ({typestr}): pass a copy in this machine's")
    letters = {"f": "float", "i": "int", "u": "uint"}
    if typestr[1] in letters:
        return data_type(f"{letters[typestr[1]]}{int(typestr[2:]) * 8}")
    return data_type(getattr(array, "dtype", typestr))


def _of_interface(array: Any, interface: dict, name: str, on_gpu: bool) -> Elements:
    shape = tuple(interface["shape"])
    kind = _kind_of(array, interface["typestr"], name)
    if not _is_contiguous(shape, interface.get("strides"), size_of(kind)):
        raise _not_contiguous(name)
    address, read_only = interface["data"]
    return Elements(address or 0, _count(shape), kind, on_gpu, bool(read_only), array)


class _View(ctypes.Structure):
    """Py_buffer, which is part of Python's stable ABI."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


_FORMAT_AND_STRIDES = 0x0004 | 0x0018  # PyBUF_FORMAT | PyBUF_STRIDES
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.c_void_p]
_release_buffer.restype = None


class _Exported:
    """An object's buffer, which cannot be resized or released while this lives. memoryview would do, but it tells
    nobody the address of one that is read-only."""

    def __init__(self, array: Any) -> None:
        self.view = None
        # Raw bytes, since ctypes would drop a reference of its own to `obj`.
        self._memory = ctypes.create_string_buffer(ctypes.sizeof(_View))
        _get_buffer(array, self._memory, _FORMAT_AND_STRIDES)  # raises TypeError or BufferError
        self.view = _View.from_buffer(self._memory)
        self._release = _release_buffer

    def __del__(self) -> None:
        if self.view is not None:
            self.view = None
            self._release(self._memory)


def _of_buffer(array: Any, name: str) -> Elements:
    try:
        exported = _Exported(array)
    except BufferError as failure:
        raise ArcommError(f"{name} lends no memory: {failure}") from None
    view = exported.view
    form = (view.format or b"B").decode()
    byte_order, letter = (form[0], form[1:]) if form[0] in "@=<>!" else ("@", form)
    if byte_order in ">!":
        raise ArcommError(f"{name} has elements in the other byte order ({form}): pass a copy in this machine's")
    if letter in tuple("efd"):
        kind = data_type(f"float{view.itemsize * 8}")
    elif letter in tuple("bhilqn"):
        kind = data_type(f"int{view.itemsize * 8}")
    elif letter in tuple("BHILQN"):
        kind = data_type(f"uint{view.itemsize * 8}")
    else:
        raise ArcommError(f"elements of {name} have the format {form!r}, which is not served")
    shape = tuple(view.shape[: view.ndim])
    if not _is_contiguous(shape, tuple(view.strides[: view.ndim]), view.itemsize):
        raise _not_contiguous(name)
    return Elements(view.buf or 0, view.len // view.itemsize, kind, False, bool(view.readonly), exported)


def _of_dlpack(array: Any, name: str) -> Elements:
    lent = dlpack.borrow(array, name)
    tensor = lent.tensor
    kind = data_type(dlpack.type_name(tensor, name))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(s * size_of(kind) for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    if not _is_contiguous(shape, strides, size_of(kind)):
        raise _not_contiguous(name)
    address = (tensor.data or 0) + tensor.byte_offset
    return Elements(address, _count(shape), kind, dlpack.on_gpu(tensor, name), lent.read_only, lent)
