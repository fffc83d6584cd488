"""Kernels under a release of Triton that is not known. A program, which writes as JSON why each way
to run one ended; nothing where it did not:

    TRITON_INTERPRET=1 python -m tests.unit.kernels.unknown_release
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as module

from tpcheck.kernels import interpreter, refusals

VERSION = "4.0.0"


@triton.jit
def _copy(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


class _Alone:
    """What runs kernels and is of no class that is known, as before 3.6."""

    def __getitem__(self, grid: tuple[int]) -> Callable[[], None]:
        return lambda: None


tuned = triton.autotune([triton.Config({"BLOCK": n}) for n in (4, 8)], key=[])(_copy)
of_one = triton.autotune([triton.Config({"BLOCK": 8})], key=[])(_copy)
by_rule = triton.heuristics({"BLOCK": lambda given: 8})(_copy)
both = triton.heuristics({})(tuned)
x, y = torch.ones(8), torch.zeros(8)

WAYS: dict[str, Callable[[], object]] = {
    "launched": lambda: _copy[(1,)](x, y, BLOCK=8),
    "run": lambda: _copy.run(x, y, BLOCK=8, grid=(1,), warmup=False),
    "warmed up": lambda: _copy.warmup(x, y, BLOCK=8, grid=(1,)),
    "called": lambda: _copy(x, y, 8),
    "tuned": lambda: tuned[(1,)](x, y),
    "tuned, of one": lambda: of_one[(1,)](x, y),
    "tuned, warmed up": lambda: tuned.warmup(x, y, grid=(1,)),
    "by a class of its own": lambda: _Alone()[(1,)](),
    "by a rule": lambda: by_rule[(1,)](x, y),
    "by a rule, tuned": lambda: both[(1,)](x, y),
}


def ended(way: str) -> str:
    try:
        WAYS[way]()
    except Exception as error:
        reasons = filter(None, map(refusals.unmodelled, refusals.causes(error)))
        return next(reasons, f"{type(error).__name__}: {error}")
    return ""


if __name__ == "__main__":
    triton.__version__ = VERSION
    _Alone.__module__, module._Alone = module.__name__, _Alone
    interpreter.install()
    print(json.dumps({way: ended(way) for way in WAYS}))
