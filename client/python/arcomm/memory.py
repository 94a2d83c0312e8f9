"""Memory that the daemon owns and this process shares."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

from . import session
from .abi import DataType
from .arrays import data_type, size_of
from .errors import ArcommError
from .library import check, load

_TYPESTRS = {DataType.Float16: "<f2", DataType.Float32: "<f4", DataType.Float64: "<f8"}


class DeviceArray:
    """An array in a GPU's memory, for torch.as_tensor, cupy.asarray and whatever else reads the interface."""

    def __init__(self, address: int, shape: tuple[int, ...], kind: DataType) -> None:
        self.shape = shape
        self.dtype = kind.name.lower()
        letter = "u" if self.dtype.startswith("u") else "i"
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": _TYPESTRS.get(kind) or ("<V2" if kind == DataType.Bfloat16 else f"<{letter}{size_of(kind)}"),
            "data": (address, False),
            "strides": None,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"arcomm.DeviceArray(shape={self.shape}, dtype={self.dtype})"


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> Any:
    """An array in memory that the daemon shares with this process: collectives on it move without a copy. It is zeroed.

    Args:
        shape: a number of elements, or a tuple of extents.
        dtype: "float32", numpy.float32, torch.float32, ...

    Returns numpy's array (torch.from_numpy makes a tensor of it); on GPUs, of the GPU that is current in this thread,
    a DeviceArray; on the host for bfloat16, which numpy has not, an array of uint16 whose bits they are, for
    torch.from_numpy(x).view(torch.bfloat16). The memory is given back once nothing refers to the array, or to a view
    of it.
    """
    session.ensure()
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(not isinstance(extent, int) or extent < 0 for extent in extents):
        raise ArcommError(f"shape is {shape}: its extents are numbers of 0 and more")
    kind = data_type(dtype)
    pointer = ctypes.c_void_p()
    library = load()
    size = max(math.prod(extents) * size_of(kind), 1)
    check(library.arcMemAlloc(ctypes.byref(pointer), size))
    address = pointer.value or 0
    if session.on_gpu():
        made: Any = DeviceArray(address, extents, kind)
        weakref.finalize(made, library.arcMemFree, address).atexit = False
        return made
    block = (ctypes.c_char * size).from_address(address)
    # The array and its views keep the block, and the block its memory. At exit the process gives it back whole.
    weakref.finalize(block, library.arcMemFree, address).atexit = False
    import numpy  # nothing else of this package needs it

    name = "uint16" if kind == DataType.Bfloat16 else kind.name.lower()
    return numpy.frombuffer(block, dtype=name, count=math.prod(extents)).reshape(extents)
