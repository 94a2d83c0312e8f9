"""What of torch.distributed's reductions arcommd has: decided by type and operation alone, which are the same on all
ranks, and so is what comes of it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..abi import DataType, RedOp

KINDS = {
    getattr(torch, kind.name.lower()): int(kind) for kind in DataType if hasattr(torch, kind.name.lower())
}  # fmt: skip
_RedOpType = dist.ReduceOp.RedOpType
_OPS = {
    int(_RedOpType.SUM): int(RedOp.Sum),
    int(_RedOpType.AVG): int(RedOp.Avg),
    int(_RedOpType.PRODUCT): int(RedOp.Prod),
    int(_RedOpType.MIN): int(RedOp.Min),
    int(_RedOpType.MAX): int(RedOp.Max),
}
_PREMUL_SUM = int(_RedOpType.PREMUL_SUM)
# Of truth values, as NCCL's backend has it: any of them, or all.
_OF_BOOL = {
    int(RedOp.Sum): int(RedOp.Max),
    int(RedOp.Max): int(RedOp.Max),
    int(RedOp.Prod): int(RedOp.Min),
    int(RedOp.Min): int(RedOp.Min),
}


# What codecs serve: see arcAllReduceWith.
_CODED_KINDS = {int(DataType.Float16), int(DataType.Bfloat16), int(DataType.Float32)}
_CODED_OPS = {int(RedOp.Sum), int(RedOp.Avg)}


class Reduction:
    """op: RedOp's number. factor: what the elements are multiplied by before, or None. has_codecs: the group's serves it."""

    __slots__ = ("factor", "has_codecs", "kind", "op", "view")

    def __init__(self, kind: int, op: int, view: torch.dtype | None = None, factor: Any = None) -> None:
        self.kind = kind
        self.op = op
        self.view = view
        self.factor = factor
        self.has_codecs = kind in _CODED_KINDS and op in _CODED_OPS


def reduction_of(dtype: torch.dtype, reduce_op: Any) -> Reduction | None:
    """None where arcommd has it not."""
    number = int(getattr(reduce_op, "op", reduce_op))
    if dtype is torch.bool:
        op = _OF_BOOL.get(_OPS.get(number, -1))
        return None if op is None else Reduction(KINDS[torch.uint8], op, view=torch.uint8)
    kind = KINDS.get(dtype)
    if kind is None:
        return None
    if number == _PREMUL_SUM:
        if not dtype.is_floating_point:
            return None
        return Reduction(kind, int(RedOp.Sum), factor=reduce_op.__getstate__()[1])
    op = _OPS.get(number)
    return None if op is None else Reduction(kind, op)
