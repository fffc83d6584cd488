"""Triton kernels on the CPU: what tpcheck replaces in its interpreter, and what programs touch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor


def interpreted(show: Callable[[], list[str]], own: Mapping[str, Tensor]) -> list[str]:
    """What is shown under the interpreter, where accesses outside of the tensors of a launch, and
    programs that race, are told.

    Args:
        own: tensors whose elements, and nothing beside them, a launch may touch.
    """
    from tpcheck.kernels import interpreter, watch  # carried along in this file

    interpreter.install()
    with watch.watching(own) as seen:
        try:
            found = show()
        except Exception as error:
            stray: BaseException | None = error
            while stray is not None and not isinstance(stray, watch.OutOfBounds):
                stray = stray.__cause__
            if stray is None:
                raise
            return [f"out of bounds: {stray}"]
    return [*found, *(f"race: {race}" for race in seen.races)]
