"""Where torch itself refuses an order of parallelisms while a model is built."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tpcheck.figures.order_causes import Row
from tpcheck.tensors.live import is_dtensor


def refused(error: BaseException) -> Row | None:
    """The row that torch refused while a model was built: `distribute_tensor` was given what is a
    DTensor already, on another mesh. The plan came after FSDP."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:  # causes may be a circle
        seen.add(id(link))
        if any(_distributes_again(frame) for frame in _frames(link)):
            return Row.FSDP_BEFORE_TP
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _distributes_again(frame: FrameType) -> bool:
    """Whether a frame is `distribute_tensor`'s, of a DTensor and another mesh than its own."""
    dtensor = sys.modules.get("torch.distributed.tensor")
    if dtensor is None or frame.f_code is not inspect.unwrap(dtensor.distribute_tensor).__code__:
        return False
    tensor: Any = frame.f_locals.get("tensor")
    return is_dtensor(tensor) and tensor.device_mesh != frame.f_locals.get("device_mesh")
