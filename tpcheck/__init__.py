"""tpcheck verifies tensor-parallel PyTorch code against its single-device reference.

The public names are loaded on first use, so that importing `tpcheck` (as the pytest plugin and
`tpcheck --help` do) costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpcheck.case import Case
    from tpcheck.engines.engine import Engine
    from tpcheck.errors import CheckFailed, InvalidArgument
    from tpcheck.known import KnownFinding
    from tpcheck.placement import Blocks, Heads, Layout, Partial, Replicate, Shard
    from tpcheck.plan.audit import audit
    from tpcheck.plan.plan import Plan
    from tpcheck.search.search import verify
    from tpcheck.spec import Check, Spec
    from tpcheck.verdict import Verdict

__version__ = "0.1.0"

_HOME = {
    "Case": "case",
    "Engine": "engines.engine",
    "CheckFailed": "errors",
    "InvalidArgument": "errors",
    "KnownFinding": "known",
    "Layout": "placement",
    "Shard": "placement",
    "Replicate": "placement",
    "Partial": "placement",
    "Heads": "placement",
    "Blocks": "placement",
    "Plan": "plan.plan",
    "audit": "plan.audit",
    "Check": "spec",
    "Spec": "spec",
    "Verdict": "verdict",
    "verify": "search.search",
}

__all__ = [
    "Blocks",
    "Case",
    "Check",
    "CheckFailed",
    "Engine",
    "Heads",
    "InvalidArgument",
    "KnownFinding",
    "Layout",
    "Partial",
    "Plan",
    "Replicate",
    "Shard",
    "Spec",
    "Verdict",
    "audit",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tpcheck' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tpcheck.{_HOME[name]}"), name)
    globals()[name] = value
    return value
