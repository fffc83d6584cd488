"""What a candidate compiles: whether it does, and its end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from tpcheck.tensors.ops import is_compiled, within


def compiles(module: Any) -> bool:
    """Whether the module or function, or a function that one of its modules holds, is handed to
    `torch.compile`. A compiled function that lives elsewhere is not seen."""
    if "torch._dynamo" not in sys.modules:
        return False
    if not isinstance(module, nn.Module):
        return is_compiled(within(module))
    return any(map(is_compiled, _held(list(module.modules()))))


def _held(modules: Sequence[nn.Module]) -> Iterator[Any]:
    """What the modules are, and hold, and what their classes do."""
    yield from modules
    for module in modules:
        yield getattr(module, "_compiled_call_impl", None)  # set by `module.compile()`
        yield from vars(module).values()
    kinds = dict.fromkeys(kind for each in {*map(type, modules)} for kind in _own_classes(each))
    for kind in kinds:
        yield from vars(kind).values()


def _own_classes(kind: type) -> tuple[type, ...]:
    """Those before torch's own in the order in which attributes are looked up."""
    order = kind.__mro__
    return order[: order.index(nn.Module)]


def graphs() -> int:
    """How many graphs this process has compiled."""
    if "torch._dynamo" not in sys.modules:
        return 0
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def within_limits() -> contextlib.AbstractContextManager[Any]:
    """What would be compiled more often than torch allows raises, where it would run eagerly from
    then on (`met_limit`)."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[Any]
    found = torch._dynamo.config.patch(fail_on_recompile_limit_hit=True)
    return found


def met_limit(error: BaseException) -> bool:
    """Whether it is what is raised `within_limits`."""
    if "torch._dynamo" not in sys.modules:
        return False
    return isinstance(error, torch._dynamo.exc.FailOnRecompileLimitHit)


def forget_rules() -> None:
    """Empties the caches of Dynamo's rules, as torch does when a process makes its first group:
    done once before the ranks are forked, it finds them empty in each."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.trace_rules.clear_lru_cache()


#: Of Python; the inductor raises it to `RAISED` where it compiles.
_RECURSION, _RAISED = sys.getrecursionlimit(), 2000


def forget() -> None:
    """What was compiled for one case is not for the next: on warm ranks the same code would be
    compiled once more for each case's shapes, up to Dynamo's limit, and then fail or run eagerly.
    What a library compiles when it is imported is compiled anew for every case, too.
    """
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if "torch._inductor.compile_fx" in sys.modules and sys.getrecursionlimit() == _RAISED:
        sys.setrecursionlimit(_RECURSION)  # else each case would be said to leave it changed
