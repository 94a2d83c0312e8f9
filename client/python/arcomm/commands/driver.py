"""As much of CUDA's driver as a check needs, so that it needs no torch: its library is found as libarclient finds it."""

from __future__ import annotations

import ctypes
from typing import Any

from ..errors import ArcommError


class Driver:
    """Raises ArcommError where there is none."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as failure:
            raise ArcommError(f"CUDA's driver cannot be loaded: {failure}") from None
        self._call("cuInit", 0)

    def gpus(self) -> int:
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def use(self, index: int) -> str:
        """Makes the GPU current in this thread; its name."""
        context, device, name = ctypes.c_void_p(), ctypes.c_int(), ctypes.create_string_buffer(96)
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        return name.value.decode()

    def write(self, address: int, data: bytes) -> None:
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        """Once all that was put on streams has ended."""
        self._call("cuCtxSynchronize")
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            words = ctypes.c_char_p()
            self._library.cuGetErrorString(result, ctypes.byref(words))
            raise ArcommError(f"{name}: {(words.value or b'').decode() or result}")
