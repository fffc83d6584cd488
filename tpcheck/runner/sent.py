"""What a runner sends to the ranks: the candidate, and a case."""

from __future__ import annotations

import hashlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tpcheck.budget import Budget
from tpcheck.check import Check
from tpcheck.oracle.pose import Posed
from tpcheck.process.loaded import OF_OPTIMIZERS, is_installed
from tpcheck.protocol.messages import Teach
from tpcheck.protocol.pickled import homes, modules_of
from tpcheck.runner.files import CaseFiles

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


def of_case(posed: Posed, files: CaseFiles) -> dict[str, Any]:
    """The fields of `Work` that say which case it is, and where its tensors are."""
    return {
        "bundle": str(files.bundle),
        "suspects": str(files.suspects),
        "case": posed.case,
        "params": posed.params,
        "inputs": posed.inputs,
        "outputs": posed.outputs,
        "targets": {(t.kind, t.name): t.entry for t in posed.problems[0].targets},
        "named": posed.named,
        "computed": posed.computed,
        "frozen": posed.frozen,
    }


def noted(allowed: Budget | None, **asked: bool) -> dict[str, Any]:
    """What ranks must note for a budget to be held against it, and what else is `asked` of them."""
    if allowed is None:
        return asked
    return {**asked, "saved": allowed.saved is not None, "witnesses": allowed.witnesses}


def taught(blob: bytes, engine: Engine, *, trains: bool) -> Teach:
    """
    Args:
        trains: whether its ranks make optimizers.
    """
    loads, variables = OF_OPTIMIZERS if trains else (), engine.world.warm_up().since()
    told = blob + repr(sorted(variables.items())).encode()
    key = hashlib.sha256(told).hexdigest()[:16]
    return Teach(key, blob, list(sys.path), _own_modules(), modules_of(blob), loads, variables)


#: Modules that need not be found by file, by name: thousands, of which this is asked once.
_others: dict[str, ModuleType] = {}


def _own_modules() -> dict[str, str]:
    """Modules of the driver that ranks may have to find by file: none of the standard library,
    none of site-packages."""
    out = {}
    for name, module in list(sys.modules.items()):
        if _others.get(name) is module:
            continue
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and not is_installed(file) and name != "__main__":
            out[name] = file
        else:
            _others[name] = module
    return out


def parts_of(check: Check) -> dict[str, Any]:
    """What ranks need to know of a check."""
    spec = check.spec
    parts = {
        "candidate": check.candidate,
        "forward": spec.forward,
        "load": check.load,
        "save": check.save,
        "resumes": check.resumes,
        "reads": check.reads,
        "schedule": check.schedule,
        "finalize": spec.finalize,
        "kernel": check.kernel,
        "clip": check.clip,
        "norm": spec.norm,
        "shares_gradients": spec.shares_gradients,
        "training": spec.training,
        "optimizer": check.optimizer,
        "overwrites": spec.overwrites,
        "constants": spec.constants,
        "context": check.context,
        "forward_context": check.forward_context,
    }
    inner = getattr(check.candidate, "fn", None)  # of a kernel
    return {"homes": homes([*parts.values(), inner]), **parts}
