"""Hypotheses about ranks that clip their gradients, and others that don't."""

from __future__ import annotations

from torch import Tensor

from tpcheck.causes.norms import NotClipped
from tpcheck.diagnosis.facts import Facts, Local, on_all_data
from tpcheck.diagnosis.replay import unclipped, value_of
from tpcheck.protocol.conventions import LEARNING_RATE
from tpcheck.tensors.names import InPass
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind


def not_clipped(facts: Facts, local: Local) -> Diagnosis | None:
    """Some ranks have what a step by the gradients as they were leaves, and the others what they
    should."""
    every = on_all_data(facts, local)
    wrong = {rank: one for one in every for rank in one.wrong()}
    if not facts.problem_of(local).most or not wrong or _wrong_after(facts, local) - wrong.keys():
        return None
    having = [rank for one in every for rank in one.ranks if one.expected[rank].numel()]
    if len(wrong) == len(having) and not _right_elsewhere(facts, local):
        return None
    stepped = _unclipped(facts, local)
    if stepped is None or not all(one.holds(stepped, rank) for rank, one in wrong.items()):
        return None
    return Diagnosis(Code.REPLICAS_DIFFER, NotClipped(local.subject, tuple(sorted(wrong))))


def _wrong_after(facts: Facts, local: Local) -> set[int]:
    """The ranks on which the same step leaves any parameter that is wrong, of its data's."""
    wrong = [m for m in facts.result.mismatches if (m.kind, m.name.at) == (Kind.PARAM, local.at)]
    apart = not facts.posed.shared
    own = facts.case.dp_coordinate(local.ranks[0])
    return {m.rank for m in wrong if not apart or facts.data_of(m) == own}


def _right_elsewhere(facts: Facts, local: Local) -> bool:
    """Whether ranks with data and gradients of their own have what they should."""
    apart = facts.case.dp > 1 and not facts.posed.shared
    return apart and facts.seen_wrong(local) <= set(local.ranks)


def _unclipped(facts: Facts, local: Local) -> Tensor | None:
    """What a step by gradients that were not clipped leaves of a parameter, or of what an optimizer
    keeps of it."""
    problem, training = facts.problem_of(local), facts.spec and facts.spec.training
    name = InPass.parse(local.target.name).base
    if training and training.scaling is None and local.kind in (Kind.PARAM, Kind.OPTIMIZER_STATE):
        kept, left = unclipped(problem, training, local.at.step)
        found = (left if local.kind is Kind.PARAM else kept).get(name)
        return None if found is None else found.to(local.target.dtype).double()
    gradient = value_of(problem, Kind.PARAM_GRAD, name, 0)
    if training or local.kind is not Kind.PARAM or gradient is None or name not in problem.params:
        return None
    return problem.params[name].double() - LEARNING_RATE * gradient
