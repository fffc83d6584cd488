"""A later microbatch by itself, as if it were the case's only one, or the forward after a step, of
the parameters that the step leaves: most hypotheses ask the reference about the first, or run the
candidate on other numbers in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor

from tpcheck.case import Case
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.oracle.pose import Posed, pose
from tpcheck.spec import Spec
from tpcheck.tensors.draw import Draw
from tpcheck.tensors.names import FIRST, InPass, Key
from tpcheck.vocabulary import Kind


def wrong_alone(facts: Facts, local: Local) -> bool:
    """Whether the tensor is wrong, too, where the numbers of its pass are those of a case's only
    one: then nothing of the first is to blame."""
    posed, run = _alone(facts, local), facts.fresh or facts.execute
    if posed is None or run is None:
        return False
    own = (local.kind, InPass.parse(local.target.name).base)
    return any((m.kind, m.tensor) == own for m in run(posed).mismatches)


def alone(facts: Facts, local: Local) -> tuple[Facts, Local] | None:
    """The failure in a later pass as that of a case without others, where it is one; None of a
    first microbatch, and of what belongs to all."""
    posed = _alone(facts, local)
    if posed is None or not wrong_alone(facts, local):
        return None
    at = local.at

    def first(name: str) -> str | None:
        own = InPass.parse(name)
        return own.base if own.at == at else None

    mismatches = [
        replace(m, tensor=name)
        for m in facts.result.mismatches
        if (name := first(m.tensor)) is not None
    ]
    dumps = {
        rank: {Key(k.kind, n): t for k, t in held.items() if (n := first(k.name)) is not None}
        for rank, held in facts.dumps.items()
    }
    result = replace(facts.result, case=posed.case, mismatches=mismatches)
    own = replace(facts, posed=posed, result=result, again=result)
    own = replace(own, dumps=dumps, spec=_spec(facts, local))
    base = InPass.parse(local.target.name).base
    target = replace(local.target, name=base)
    return own, replace(local, target=target, case=posed.case, inside=local.subject)


def _alone(facts: Facts, local: Local) -> Posed | None:
    """The case with the numbers of one pass alone."""
    spec = _spec(facts, local)
    if spec is None or not (local.kind.is_output or local.kind is Kind.INPUT_GRAD):
        return None
    return pose(spec, replace(facts.case, microbatches=1, step=False))


def _spec(facts: Facts, local: Local) -> Spec | None:
    spec, at = facts.spec, local.at
    if spec is None or spec.training is not None or at == FIRST:
        return None
    if at.microbatch is not None:
        return on_data(spec, microbatch=at.microbatch)
    targets = facts.problem_of(local).targets
    left = {t.name: t.value for t in targets if t.kind is Kind.PARAM}
    return replace(spec, init=partial(_state_of, spec, left))


def on_data(spec: Spec, *, d: int | None = None, microbatch: int | None = None) -> Spec:
    """With the inputs of one dp coordinate, or of one microbatch, in every place."""

    def inputs(case: Case, draw: Draw) -> Mapping[str, Tensor]:
        what, own, number = draw.scope
        own, number = own if d is None else d, number if microbatch is None else microbatch
        return spec.inputs(case, Draw(case, what, own, number))

    return replace(spec, inputs=inputs)


def _state_of(
    spec: Spec, left: Mapping[str, Tensor], name: str, shape: tuple[int, ...], draw: Draw
) -> Tensor | None:
    """A parameter, or buffer, as it was left."""
    if (found := left.get(name)) is not None:
        return found
    return spec.init(name, shape, draw) if spec.init else None
