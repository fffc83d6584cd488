"""Which of torch's packages a process has loaded."""

from __future__ import annotations

import functools
import sys


def parts_of_torch() -> list[str]:
    """Their names. What a candidate imports of torch, the zygote loads once for all ranks to come,
    where each would take a second for it. Of torch alone: another library may replace functions
    when it is imported, and is loaded where it is asked for."""
    return _parts(len(sys.modules))


@functools.lru_cache(1)
def _parts(count: int) -> list[str]:
    """Of a process with so many modules."""
    loaded = [(name, module) for name, module in list(sys.modules.items()) if name.count(".") < 3]
    return [name for name, module in loaded if name[:6] == "torch." and hasattr(module, "__path__")]
