"""Ops of `torch.library` that a kernel is, or calls."""

from __future__ import annotations

from typing import Any

from tpcheck.script.parts.kernel import Tensors, backward, fresh
from tpcheck.script.parts.tensors import named


def opchecked(
    kernel: Any, inputs: Tensors, upstream: Tensors, *, compiled: bool, moved: float
) -> list[str]:
    """What `torch.library.opcheck` finds of each.

    Args:
        compiled: whether they are also compiled.
        moved: by how much rounding may move any result.
    """
    from tpcheck.kernels import registered  # carried along in this file

    calls, given = registered.Calls(), fresh(inputs)
    with calls.forwards():
        outputs = named(kernel(*given.values()))
    with calls.backwards():
        backward(outputs, upstream())
    return [
        f"{found.op}: {found.test} of torch.library.opcheck: {found.type}: {found.text}"
        for call in calls.first.values()
        for found in registered.failures(call, compiled=compiled, moved=moved)
    ]
