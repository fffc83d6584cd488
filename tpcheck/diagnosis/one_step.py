"""A step of training by itself, as if it were the case's only one: most hypotheses ask the
reference about a first backward, and what they say holds of any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from tpcheck.case import Case
from tpcheck.diagnosis.facts import Dumps, Facts, Local, values
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.names import InPass, Key, Pass
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Kind


def by_itself(facts: Facts, local: Local) -> tuple[Facts, Local] | None:
    """The failure in a later step as that of a case without others, whose parameters are those that
    the reference has before it; None of a first step, and of what a step leaves."""
    step, spec = _step_of(facts, local), facts.spec
    if not step or not (local.kind.is_output or local.kind.is_gradient):
        return None
    if spec is None or spec.training is None:
        return None
    problems = [_problem(p, facts.case.microbatches, step) for p in facts.posed.problems]
    alone = replace(
        facts,
        posed=replace(facts.posed, problems=problems),
        result=_result(facts.result, step),
        again=_result(facts.again, step),
        dumps=_dumps(facts.dumps, step),
        rerun=lambda case: _rerun(facts, case, step),
        spec=replace(spec, training=None, norm=None),
        execute=None,  # the candidate takes all its steps
    )
    if local.inside is not None:  # a boundary's name has no step
        return alone, local
    target = replace(local.target, name=str(_first(local.target.name, step)))
    return alone, replace(local, target=target, inside=local.subject)


def _step_of(facts: Facts, local: Local) -> int:
    """The step in which a tensor is wrong: boundaries are watched in the first that is."""
    if local.inside is None:
        return local.at.step
    return min((m.name.at.step for m in values(facts.result)), default=0)


def _first(name: str, step: int) -> InPass | None:
    """The name that a tensor of this step would have in the first one; None of another step's."""
    own = InPass.parse(name)
    if own.at.step != step:
        return None
    return InPass(own.base, Pass(own.at.microbatch))


def _problem(problem: Problem, microbatches: int, step: int) -> Problem:
    of_step = slice(step * microbatches, (step + 1) * microbatches)
    masks = {
        Pass(at.microbatch).suffix: masks
        for suffix, masks in problem.masks.items()
        if (at := Pass.parse(suffix.removeprefix("@")) or Pass(0)).step == step
    }
    return replace(
        problem,
        params=_before(problem, step),
        inputs=problem.inputs[of_step],
        cotangents=problem.cotangents[of_step],
        targets=[
            replace(target, name=str(first))
            for target in problem.targets
            if (first := _first(target.name, step)) is not None
        ],
        most=[],
        masks=masks,
    )


def _before(problem: Problem, step: int) -> dict[str, Tensor]:
    """The state as the step before leaves it, tied parameters still one; buffers as drawn."""
    left = {
        own.base: target.value
        for target in problem.targets
        if target.kind is Kind.PARAM and (own := InPass.parse(target.name)).at == Pass(0, step - 1)
    }
    by_drawn: dict[int, Tensor] = {}
    return {
        name: by_drawn.setdefault(id(drawn), left.get(name, drawn))
        for name, drawn in problem.params.items()
    }


def _result(result: CaseResult, step: int) -> CaseResult:
    mismatches = [
        replace(mismatch, tensor=str(first))
        for mismatch in result.mismatches
        if (first := _first(mismatch.tensor, step)) is not None
    ]
    return replace(result, mismatches=mismatches)


def _rerun(facts: Facts, case: Case, step: int) -> CaseResult | None:
    found = facts.rerun(case)
    return None if found is None else _result(found, step)


def _dumps(dumps: Dumps, step: int) -> Dumps:
    def of_rank(held: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        named = {key: _first(key.name, step) for key in held}
        return {
            Key(key.kind, str(first)): held[key]
            for key, first in named.items()
            if first is not None
        }

    return {rank: of_rank(held) for rank, held in dumps.items()}
