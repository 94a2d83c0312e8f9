"""torch.distributed's backend "arcomm": AllReduce through the daemon, of CUDA tensors in the caller's stream, the rest by
NCCL and Gloo.

    torch.distributed.init_process_group("arcomm")

The entry point `torch.backends` of the installed package registers it when torch is imported.
"""

from __future__ import annotations

import logging

import torch.distributed as dist

from .group import ArcommProcessGroup, create
from .options import Options

__all__ = ["ArcommProcessGroup", "Options", "register", "register_at_import"]


def register() -> None:
    """Makes the name known to torch.distributed; again does nothing."""
    if "arcomm" not in dist.Backend.backend_list:
        dist.Backend.register_backend("arcomm", create, extended_api=True, devices=["cpu", "cuda"])


def register_at_import() -> None:
    """The entry point: torch is imported whatever this meets."""
    try:
        if dist.is_available():
            register()
    except Exception:  # noqa: BLE001
        logging.getLogger(__name__).exception("the backend arcomm could not be registered")
