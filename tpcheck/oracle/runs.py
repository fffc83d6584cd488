"""The runs of a reference on one case's numbers: in float64, in the case's dtype, of the sizes of
its terms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tpcheck.bounds.split import SplitProducts
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.noise import Noise, Run
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.reference import References, ask, draw_cotangents
from tpcheck.oracle.repeats import FEW, check_same
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.draw import torch_dtype


def first_run(passes: Passes, module: Any) -> Run:
    """The values, in float64; its cotangents are drawn as soon as an output's shape is known."""
    draw = partial(draw_cotangents, passes.case)
    run: Run = ask(passes.spec, "reference's forward or backward", passes, module, draw)
    return run


def masked_run(passes: Passes, module: Any) -> Run | None:
    """The values with random masks that all runs have; None where it draws something else."""
    run = first_run(replace(passes, random=True), module)
    drawn = any(one.masks for one in run) and not any(one.unread for one in run)
    return run if drawn else None


def formula_run(passes: Passes, of: References, first: Run) -> Run:
    """What rounding is studied on, in float64: it must be the reference's function."""
    if of.formula is of.exact:
        return first
    run: Run = ask(passes.spec, "rounding's forward or backward", passes, of.formula)
    noise = Noise(passes, of.formula, run, torch.float64)
    check_same(passes, first, run, [noise.deviations(k) for k in range(FEW)])
    return run


def own_run(passes: Passes, low: Any) -> Run:
    """In the case's dtype, with torch's own choice of kernels: another order of the same
    computation."""
    return _lower(passes, torch_dtype(passes.case), low)


def _lower(passes: Passes, dtype: torch.dtype, module: Any) -> Run:
    what = f"reference's forward or backward in {str(dtype).removeprefix('torch.')}"
    run: Run = ask(passes.spec, what, replace(passes, dtype=dtype), module)
    return run


@dataclass(frozen=True)
class Low:
    """What `bounds/floor` is shown.

    Args:
        low: a run in the case's dtype, in float32 for float64. Where products accumulate in more
            than they are stored in, each is split over the ranks: what a partial sum rounds is then
            most of its error.
        own: the same of products that are not split.
        right: in float64, on the numbers that these had.
    """

    low: Run
    own: Run
    right: Run


def low_run(
    passes: Passes,
    of: References,
    exact: Run,
    own: Callable[[], Run],
    noted: Callable[[Callable[[], Run]], Run],
) -> Low | None:
    """None where the reference can't run in float32, of a case in float64.

    Args:
        exact: the run in float64.
        own: makes the one in the case's dtype.
        noted: makes the run in float32, of a case in float64.
    """
    case = passes.case
    if case.dtype == "float64":
        with contextlib.suppress(Exception):  # a reference may ask for the case's own dtype
            return _in_float32(passes, of, noted)
        return None
    plain = own()
    if case.tp == 1 or torch.finfo(torch_dtype(case)).bits >= 32:
        return Low(plain, plain, exact)
    with contextlib.suppress(InvalidArgument), SplitProducts(case.tp):
        return Low(own_run(passes, of.low), plain, exact)
    return Low(plain, plain, exact)  # what can't be split, as what `torch.cond` runs


def _in_float32(passes: Passes, of: References, noted: Callable[[Callable[[], Run]], Run]) -> Low:
    """Both runs are on numbers that float32 holds: what it rounds of what it is given, float64
    would not."""

    def held(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        floats = (n for n, t in tensors.items() if t.is_floating_point())
        return {**tensors, **{n: tensors[n].float().to(tensors[n].dtype) for n in floats}}

    problems = [
        replace(
            p,
            params=held(p.params),
            inputs=[held(inputs) for inputs in p.inputs],
            cotangents=[held(cotangents) for cotangents in p.cotangents],
        )
        for p in passes.problems
    ]
    passes = replace(passes, problems=problems)
    low = noted(partial(_lower, passes, torch.float32, of.narrow()))
    with sdpa_kernel([SDPBackend.MATH]):
        return Low(low, low, passes(of.formula))


def with_cotangents(passes: Passes, first: Run) -> Passes:
    """The same walk over problems that have the cotangents of the first run."""
    pairs = zip(passes.problems, first, strict=True)
    problems = [
        replace(problem, cotangents=one.cotangents, most=list(one.most), masks=dict(one.masks))
        for problem, one in pairs
    ]
    return replace(passes, problems=problems)


def sizes(passes: Passes, module: Any) -> Run:
    """The values of a linear spec over the sizes of all drawn numbers: Σ |term| of each element."""

    def of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {n: t.abs() if t.is_floating_point() else t for n, t in tensors.items()}

    positive = [
        Problem(
            p.d,
            params=of(p.params),
            inputs=[of(inputs) for inputs in p.inputs],
            cotangents=[of(cotangents) for cotangents in p.cotangents],
            masks=p.masks,
            terms=p.terms,
        )
        for p in passes.problems
    ]
    return replace(passes, problems=positive, watch=None)(module)
