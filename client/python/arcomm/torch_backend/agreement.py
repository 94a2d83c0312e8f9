"""What all ranks of a group decide together, through its store: whom the group attaches to, and each communicator. One
rank that cannot is a no for all of them, and rank 0 logs whose words they were."""

from __future__ import annotations

import logging
import os
import pathlib

import torch
import torch.distributed as dist

from .. import session
from ..communicator import Communicator, unique_id
from ..errors import ArcommError
from .options import Options

_log = logging.getLogger(__name__)
_MOST_GPUS = 8  # of a communicator: see arcCommInitRank


class Agreement:
    """One group's. Every rank asks the same questions in the same order."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size

    def device(self, timeout: float) -> str | None:
        """What all of them are attached to now: "gpu", "host", or None. On GPUs where every rank has one and its daemon
        serves them; $ARCOMM_DEVICE and an earlier arcomm.init() have the first word."""
        wanted = self._tell("wanted", _wanted())
        if all(each == "gpu" for each in wanted) and self._attached("gpu", timeout, quietly="ARCOMM_DEVICE" not in os.environ):
            return "gpu"
        return "host" if self._attached("host", timeout) else None

    def _attached(self, device: str, timeout: float, quietly: bool = False) -> bool:
        attached_here = False
        try:
            if not session.is_attached():
                named = os.environ.get("ARCOMM_DEVICE") or {"gpu": "gpu", "host": "host:0"}[device]
                session.init(named, timeout=timeout)
                attached_here = True
            said = "yes" if session.on_gpu() == (device == "gpu") else "attached to another device before"
        except ArcommError as failure:
            said = str(failure) or "?"
        if self._all_say_yes(f"attached/{device}", said, quietly):
            return True
        if attached_here:
            session.finalize()
        return False

    def communicator(self, name: str, options: Options) -> Communicator | None:
        """Of all ranks, on the GPU that is current where they are attached to GPUs; or None on all of them."""
        if session.on_gpu() and not self._share_a_node(name):
            return None
        if self._rank == 0:
            self._store.set(f"{name}/id", unique_id())
        made = None
        try:
            identity = bytes(self._store.get(f"{name}/id"))
            made = Communicator(identity, self._rank, self._size, most_sms=options.most_sms, **options.coding)
            said = "yes"
        except ArcommError as failure:
            said = str(failure) or "?"
        if self._all_say_yes(f"{name}/formed", said):
            return made
        if made is not None:
            made.abort()
        return None

    def _share_a_node(self, name: str) -> bool:
        """And no GPU: what else would be found by waiting for one another."""
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        node = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        places = self._tell(f"{name}/place", f"{node} {getattr(properties, 'uuid', self._rank)}")
        why = None
        if len({place.split()[0] for place in places}) > 1:
            why = "its ranks are on several nodes"
        elif self._size > _MOST_GPUS:
            why = f"it has {self._size} ranks, and communicators on GPUs at most {_MOST_GPUS}"
        elif len(set(places)) < self._size:
            why = "two of its ranks use the same GPU: call torch.cuda.set_device(local_rank) before"
        if why is not None and self._rank == 0:
            _log.warning("this group's AllReduces of CUDA tensors are NCCL's, not arcommd's: %s", why)
        return why is None

    def _tell(self, question: str, said: str) -> list[str]:
        self._store.set(f"{question}/{self._rank}", said.encode())
        return [bytes(self._store.get(f"{question}/{other}")).decode() for other in range(self._size)]

    def _all_say_yes(self, question: str, said: str, quietly: bool = False) -> bool:
        answers = self._tell(question, said)
        refusals = [f"rank {other}: {answer}" for other, answer in enumerate(answers) if answer != "yes"]
        if refusals and self._rank == 0:
            theirs = "NCCL's" if question.startswith("cuda") else "Gloo's"
            _log.log(
                logging.INFO if quietly else logging.WARNING,
                "this group's AllReduces are %s, not arcommd's: %s", theirs, "; ".join(refusals),
            )  # fmt: skip
        return not refusals


def _wanted() -> str:
    if session.is_attached():
        return "gpu" if session.on_gpu() else "host"
    named = os.environ.get("ARCOMM_DEVICE")
    if named:
        return "gpu" if named.lower().startswith("gpu") else "host"
    return "gpu" if torch.cuda.is_available() else "host"
