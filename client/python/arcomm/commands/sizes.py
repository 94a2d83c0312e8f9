"""Sizes in words."""

from __future__ import annotations

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """Of "64K" bytes, say: 65536. Raises ValueError."""
    digits = text.strip().upper().removesuffix("B")
    unit = digits[-1:] if digits[-1:] in ("K", "M", "G") else ""
    number = digits.removesuffix(unit)
    if not number.isdigit() or int(number) == 0:
        raise ValueError(f"{text!r} is no size: 1024, 64K, 1M and 1G are")
    return int(number) * _UNITS[unit]
