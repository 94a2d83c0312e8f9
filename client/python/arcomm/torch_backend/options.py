"""What a group is made with: pg_options of init_process_group and new_group.

    dist.new_group(backend="arcomm", pg_options=arcomm.torch_backend.Options(codec="q8"))
"""

from __future__ import annotations

import os
from typing import Any

from ..request import checked_sms, coding_of


class Options:
    """Of one group, the same on all its ranks.

    Args:
        codec: what sums and averages of float16, bfloat16 and float32 are rounded by before they are summed, as a
            Communicator's; other operations and types have none. Where it is not given $ARCOMM_TORCH_CODEC says it.
        least_snr_db, most_relative_error: error classes in the place of a codec.
        nccl: ProcessGroupNCCL.Options of the inner group.
        most_sms: on GPUs the kernels of its sums fill so many SMs of each at most, as a Communicator's.
    """

    def __init__(
        self,
        codec: Any = None,
        least_snr_db: float = 0,
        most_relative_error: float = 0,
        nccl: Any = None,
        most_sms: int = 0,
    ) -> None:
        if codec is None and not least_snr_db and not most_relative_error:
            codec = os.environ.get("ARCOMM_TORCH_CODEC") or None
        coding_of(codec, least_snr_db, most_relative_error)  # a wrong name is heard here
        self.coding = {"codec": codec, "least_snr_db": least_snr_db, "most_relative_error": most_relative_error}
        self.nccl = nccl
        self.most_sms = checked_sms(most_sms)

    @property
    def asks_for_coding(self) -> bool:
        return any(self.coding.values())

    @staticmethod
    def of(pg_options: Any) -> Options:
        """NCCL's own options are those of the inner group."""
        return pg_options if isinstance(pg_options, Options) else Options(nccl=pg_options)
