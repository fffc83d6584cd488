"""A candidate whose rank 3, which is on the second host, is killed."""

import os
import signal
from typing import Any

import torch.distributed as dist

from properties import mlp
from tpcheck import Case, Check, specs


def _build(case: Case, mesh: Any) -> Any:
    if dist.get_rank() == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return mlp.mlp.candidate(case, mesh)


killed = Check(specs.mlp(), candidate=_build)
