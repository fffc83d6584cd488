"""tpcheck verifies tensor-parallel PyTorch code against its single-device reference.

The public names are loaded on first use, so that importing `tpcheck` (as the pytest plugin and
`tpcheck --help` do) costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpcheck.argument import Argument
    from tpcheck.budget import Budget
    from tpcheck.case import Case
    from tpcheck.check import Check
    from tpcheck.engines.engine import Engine
    from tpcheck.errors import InvalidArgument
    from tpcheck.failed import CheckFailed
    from tpcheck.kernel import kernel_check
    from tpcheck.known import KnownFinding
    from tpcheck.layout import Layout
    from tpcheck.mutant import Mutant
    from tpcheck.norm import Norm
    from tpcheck.placement import Blocks, Heads, Only, Partial, Replicate, Shard
    from tpcheck.plan.audit import audit
    from tpcheck.plan.plan import Plan
    from tpcheck.relation import Relation
    from tpcheck.search.verify import verify
    from tpcheck.spec import Spec
    from tpcheck.training import Scaling, Training
    from tpcheck.verdict import Verdict

__version__ = "0.1.0"

_HOME = {
    "Argument": "argument",
    "kernel_check": "kernel",
    "Budget": "budget",
    "Case": "case",
    "Engine": "engines.engine",
    "CheckFailed": "failed",
    "InvalidArgument": "errors",
    "KnownFinding": "known",
    "Mutant": "mutant",
    "Norm": "norm",
    "Layout": "layout",
    "Shard": "placement",
    "Replicate": "placement",
    "Partial": "placement",
    "Heads": "placement",
    "Blocks": "placement",
    "Only": "placement",
    "Plan": "plan.plan",
    "audit": "plan.audit",
    "Check": "check",
    "Relation": "relation",
    "Spec": "spec",
    "Scaling": "training",
    "Training": "training",
    "Verdict": "verdict",
    "verify": "search.verify",
}

#: Modules that are used by their names.
_MODULES = ("adapters", "configurations", "specs", "strategies")

__all__ = [
    "Argument",
    "Blocks",
    "Budget",
    "Case",
    "Check",
    "CheckFailed",
    "Engine",
    "Heads",
    "InvalidArgument",
    "KnownFinding",
    "Layout",
    "Mutant",
    "Norm",
    "Only",
    "Partial",
    "Plan",
    "Relation",
    "Replicate",
    "Scaling",
    "Shard",
    "Spec",
    "Training",
    "Verdict",
    "audit",
    "kernel_check",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tpcheck.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'tpcheck' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tpcheck.{_HOME[name]}"), name)
    globals()[name] = value
    return value
