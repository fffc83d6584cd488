"""The norm of all gradients that a candidate says, held against that of its own gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds import compare, total_norm
from tpcheck.placement import holds, summed, take
from tpcheck.protocol.problem import Target
from tpcheck.ranks.recorders import add_up
from tpcheck.tensors import forms
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import Kind


def parts(run: Any, step: int) -> Tensor:
    """What each of the ranks that have parts of these gradients adds to their norm
    [ranks, parameters, 3], as `total_norm.part` has it: NaN of a gradient that could not be
    compared.

    Args:
        run: the `RankRun`, which has compared the gradients of this step.
    """
    case, rank = run.case, run.rank
    due, tied = run.judge.of_step(Kind.PARAM_GRAD, step), run.problem.tied
    counted = [t for t in due if InPass.parse(t.name).base not in tied]  # under its first name
    entries = [run.judge.gradients.get(target.name, (target.entry,))[0] for target in counted]
    ranks = total_norm.owners(entries, case, rank, shared=run.parts["shares_gradients"])
    table = torch.zeros(case.world_size, len(counted), 3, dtype=torch.float64)
    for i, target in enumerate(counted):
        if holds(target.entry, case=case, rank=rank):
            table[rank, i] = _part(run, target, ranks)
    run.judge.gradients.clear()
    table = table.to(run.device)
    add_up(table)
    return table.cpu()[ranks]


def judge(run: Any, name: str, norm: Tensor, own: Tensor) -> None:
    """Compares the norm with that of the ranks' own gradients, and with the reference's. The first
    is evidence by itself, which no closer bounds of the second clear.

    Args:
        own: what `parts` returned before the gradients were clipped.
    """
    target = run.judge.targets.get((Kind.GRAD_NORM, name))
    if target is None:  # of infinite gradients
        return
    order, dtype = run.parts["norm"].order, torch_dtype(run.case)
    each = total_norm.together(own, order)
    expected = total_norm.expected(each, order, dtype, len(own), norm.cpu())
    if expected is not None:
        found = compare.compare(norm, *expected, name=name, kind=target.kind, rank=run.rank)
        if found.mismatch is not None:
            run.report.compared[target.kind, name] = summed(target.entry)
            run.judge.keep(target, norm)
            run.report.mismatches.append(found.mismatch)
            return
        run.report.usage = max(run.report.usage, found.usage)
    run.judge.check(target.kind, name, norm)


def _part(run: Any, target: Target, ranks: list[int]) -> Tensor:
    """What this rank adds of a gradient of which it has a part [3]."""
    entry, gradient = run.judge.gradients.get(target.name, (target.entry, None))
    due = take(target.value, entry, case=run.case, rank=run.rank)
    if gradient is None and (target.unused or not due.numel()):
        return torch.zeros(3, dtype=torch.float64)
    known = gradient is not None and gradient.shape == due.shape and forms.odd(gradient) is None
    if not known or total_norm.is_apart(entry, run.case, shared=run.parts["shares_gradients"]):
        return torch.full((3,), torch.nan, dtype=torch.float64)
    share = total_norm.shares(entry, target.value.shape, run.case, ranks)[run.rank]
    return total_norm.part(gradient, share, run.parts["norm"].order).cpu()
