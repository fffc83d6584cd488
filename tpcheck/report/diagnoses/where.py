"""Where a failure is, in words."""

from __future__ import annotations

from tpcheck.causes.where import AtCollective, AtModule, AtTensor, FirstSeen, Subject
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


def first_seen(where: FirstSeen | None) -> str | None:
    """`mlp.down (forward); everything upstream agrees`, `x (backward)`."""
    match where:
        case None:
            return None
        case AtModule(module, phase, after):
            left = f", where {after} leaves terms of a sum" if after else ""
            return f"{module or _OUTERMOST} ({phase}{left}); everything upstream agrees"
        case AtTensor(name, phase):
            step = InPass.parse(name).at.step
            after = f"after step {step + 1}" if step else "after the step"
            return f"{name} ({after if phase is Phase.STEP else phase})"
        case AtCollective(module, in_phase):
            return f"{module} ({in_phase})"
    return f"{first_seen(where.seen)}, only where torch.compile is on"
