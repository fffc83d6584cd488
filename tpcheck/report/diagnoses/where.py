"""Where a failure is, in words."""

from __future__ import annotations

from collections.abc import Sequence

from tpcheck.causes.where import (
    AfterGradients,
    AtCollective,
    AtFinalize,
    AtModule,
    AtTensor,
    BeforeForward,
    Early,
    FirstSeen,
    LeftInGradient,
    OnlyCompiled,
    Subject,
    Unfinished,
)
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import End, Kind, Phase

_OUTERMOST = "the outermost module"


def called(subject: Subject) -> str:
    """`param_grad up.weight`, `output`, `input of mlp.down`: a tensor as a sentence calls it."""
    if subject.side is not None:
        return _at_boundary(subject, subject.side)
    base = InPass.parse(subject.name).base
    named_after_kind = base == subject.kind or base.startswith(f"{subject.kind}.")
    return subject.name if named_after_kind else f"{subject.kind} {subject.name}"


def _at_boundary(subject: Subject, side: End) -> str:
    gradient = "gradient at the " if subject.kind is Kind.INPUT_GRAD else ""
    return f"{gradient}{side}put of {subject.name or _OUTERMOST}"


def either(axes: Sequence[str]) -> str:
    """`dp`, `dp or tp`, `dp, ep or tp`: those that it may be."""
    return " or ".join(filter(None, [", ".join(axes[:-1]), *axes[-1:]]))


def first_seen(where: FirstSeen | None) -> str | None:
    """`mlp.down (forward); everything upstream agrees`, `x (backward)`, `up.weight as load left it,
    before the first forward`: no module where the fault can't be in one."""
    match where:
        case None:
            return None
        case AtModule(module, phase, after):
            place, upstream = module or _OUTERMOST, "everything upstream agrees"
            if not after:
                return f"{place} ({phase}); {upstream}"
            left = f"what {after} returns are terms of a sum, to be added up after it"
            return f"{place} ({phase}), after {after}: {left}; {upstream}"
        case AtTensor(name, phase):
            return f"{name} ({f'after {_step(name)}' if phase is Phase.STEP else phase})"
        case AtCollective(module, in_phase):
            return f"{module} ({in_phase})"
        case OnlyCompiled(seen):
            return f"{first_seen(seen)}, only where torch.compile is on"
        case BeforeForward(name, doing):
            return f"{name} as {_DOING[doing]}, before the first forward"
        case AtFinalize(name, before):
            return f"{name} {_BEFORE[before]}"
        case AfterGradients():
            return _after_gradients(where)
        case LeftInGradient(name):
            return f"{name} before its backward: the gradient of the step before is still in it"


def _step(name: str) -> str:
    step = InPass.parse(name).at.step
    return f"step {step + 1}" if step else "the step"


_DOING = {
    Early.HELD: "the candidate holds it",
    Early.LOADED: "load left it",
    Early.COMPUTED: "the candidate computes it",
}
_BEFORE = {
    Unfinished.RIGHT: "after finalize; what backward left is right",
    Unfinished.TERMS: "after finalize; what backward left on the ranks adds up to what is right",
    Unfinished.LEFT: "after backward; what the ranks have adds up to what is right, and finalize "
    "leaves it so",
    Unfinished.UNKNOWN: "after backward and finalize, which changes it",
}


def _after_gradients(where: AfterGradients) -> str:
    if where.buffer:
        return f"{where.name} after the last pass: a buffer; outputs and gradients agree"
    if where.kind is Kind.GRAD_NORM:
        return f"{where.name} (clipping); every gradient agrees"
    if where.clipped:
        what = f"after clipping and {_step(where.name)}"
        return f"{where.name} ({what}); every gradient agrees, and their norm"
    return f"{where.name} (after {_step(where.name)}); every gradient agrees"
