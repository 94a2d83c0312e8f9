"""A thread that asks how a communicator on GPUs is: streams run on when an operation has failed, so that somebody must.

$ARCOMM_TORCH_WATCHDOG: "end" (the default) logs rank and reason and, 10 s later, ends the process, unless the group has
been shut down or aborted by then; "log" logs alone; "off" is no thread.
"""

from __future__ import annotations

import logging
import os
import threading

from ..communicator import Communicator
from ..errors import ArcommError

_log = logging.getLogger(__name__)
_EVERY_S = 0.5
_GRACE_S = 10.0
_STATUS = 70  # EX_SOFTWARE
_MODES = ("end", "log", "off")


class Watchdog:
    def __init__(self, communicator: Communicator, name: str, ends_process: bool) -> None:
        self._communicator = communicator
        self._name = name
        self._ends_process = ends_process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arcomm watchdog", daemon=True)
        self._thread.start()

    @staticmethod
    def of(communicator: Communicator, name: str) -> Watchdog | NoWatchdog:
        mode = os.environ.get("ARCOMM_TORCH_WATCHDOG", "end").lower()
        if mode not in _MODES:
            raise ArcommError(f"ARCOMM_TORCH_WATCHDOG is {mode!r}: it is one of {', '.join(_MODES)}")
        return NoWatchdog() if mode == "off" else Watchdog(communicator, name, mode == "end")

    def end(self) -> None:
        """The communicator may be destroyed then."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                self._communicator.check()
            except ArcommError as failure:
                self._tell(failure)
                return

    def _tell(self, failure: ArcommError) -> None:
        whose = "" if failure.rank is None else f", rank {failure.rank}"
        then = f"; this process ends in {_GRACE_S:.0f} s unless the group is shut down" if self._ends_process else ""
        _log.error("group %s has failed (%s%s): %s%s", self._name, failure.reason.name, whose, failure.message, then)
        if self._ends_process and not self._over.wait(_GRACE_S):
            _log.critical("ending this process: group %s has failed and was not shut down", self._name)
            logging.shutdown()
            os._exit(_STATUS)


class NoWatchdog:
    def end(self) -> None:
        pass
