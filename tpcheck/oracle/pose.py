"""The reference side of a case: every number drawn, every value expected, every bound.

`pose(spec, case)` gives what the ranks of each dp coordinate are handed: one `Problem` each, whose
data differ. Letters: d = dp coordinate, m = microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from tpcheck import layout as layouts
from tpcheck import placement
from tpcheck.case import Case
from tpcheck.errors import CaseError, InvalidArgument, shown
from tpcheck.layout import Layout
from tpcheck.oracle.effort import CONFIRM, FLOOR, SCREEN, Effort
from tpcheck.oracle.expected import Expected, Study, study
from tpcheck.oracle.in_time import in_time
from tpcheck.oracle.overflow import draw_overflow
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.placed import Placed, placed_ends, placed_params, placed_tensors, terms_of
from tpcheck.oracle.reference import (
    ask,
    draw_inputs,
    draw_state,
    references,
)
from tpcheck.placement import Entry
from tpcheck.protocol.problem import Problem, Target
from tpcheck.protocol.scaling import Overflow
from tpcheck.spec import Spec
from tpcheck.tensors import case_mode
from tpcheck.tensors.forms import as_int64
from tpcheck.tensors.names import Pass, Shelf, check_names, computed_buffers, parameters_of
from tpcheck.vocabulary import Kind

#: As of `Posed`.
Rounded = Callable[[int, Kind, str, Tensor], Tensor | None]

#: Seconds that posing a case may take: a reference of ordinary size takes less than one. Shorter
#: would refuse large references on a busy machine; longer is waited for where one never ends.
LIMIT = 60.0


@dataclass(frozen=True)
class Posed:
    """A case with all its numbers, a `Problem` for each dp coordinate, its layout resolved.

    Args:
        params, inputs, outputs: name → how it is placed.
        named: parameters that the layout names itself.
        computed: buffers that no checkpoint holds.
        frozen: parameters that take no gradient in the reference.
        effort: with which the bounds were measured.
        shared: whether all dp coordinates have the same gradients of parameters.
        closely: effort → the same with bounds that are measured more closely; in as many seconds.
        rounded: (dp coordinate, kind, name, numbers of elements) → their variances by what the
            operation rounds that makes this tensor; None where that is not known. None itself where
            it is known of no tensor.
        coarse: whether something of a case in float64 has fewer digits, as noisy runs have shown.
        buffers: those of the reference.
        overflowed: steps that may be left out, or not, as rounding has it: what they leave, and
            what comes after, can't be compared.
    """

    case: Case
    problems: list[Problem]
    params: dict[str, Entry]
    inputs: dict[str, Entry]
    outputs: dict[str, Entry]
    named: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()
    effort: Effort = SCREEN
    shared: bool = False
    closely: Callable[[Effort], Posed] | None = field(default=None, repr=False, compare=False)
    rounded: Rounded | None = field(default=None, repr=False, compare=False)
    coarse: bool = False
    buffers: frozenset[str] = frozenset()
    overflowed: frozenset[int] = frozenset()


def pose(
    spec: Spec,
    case: Case,
    effort: Effort | None = SCREEN,
    *,
    watch: Pass | None = None,
    ones: bool = False,
    limit: float = LIMIT,
) -> Posed:
    """Draws the case and computes what is expected of it.

    Args:
        effort: how closely the bounds are measured; None for as little as a first look takes.
        watch: the pass whose tensors at module boundaries are noted, too.
        ones: whether cotangents are ones, as those of a `.sum()` loss are, in place of random.
        limit: seconds that it may take under SCREEN.

    Raises:
        CaseError: the spec says that the case can't be.
        LayoutError: the layout names a missing tensor or a split that the shapes don't allow.
        InvalidArgument: one of the spec's callables raises, exits, takes too long, or returns
            something else.
    """
    effort = _first_look(spec) if effort is None else effort
    with in_time(spec, case, limit * effort.patience):
        drawn = _draw(spec, case, watch, limit, ones=ones)
        return drawn.posed(effort)


def _first_look(spec: Spec) -> Effort:
    """How closely a case is looked at first: over many steps errors grow, and few are ordinary."""
    return FLOOR if spec.training is None else SCREEN


def placed_as(
    spec: Spec, case: Case, state: Mapping[str, Tensor], limit: float = LIMIT
) -> tuple[dict[str, Entry], frozenset[str]]:
    """How a state is placed on the ranks of another case, and the parameters that the layout names.

    Args:
        state: name → full tensor, as of `Problem.params`.

    Raises:
        CaseError, LayoutError, InvalidArgument: as `pose` does.
    """
    with in_time(spec, case, limit):
        layout = _layout(spec, case)
        return placed_params(layout, case, state), _named(layout, state)


def ends_as(
    spec: Spec, case: Case, posed: Posed, limit: float = LIMIT
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """How the inputs and the outputs of a case that was posed are placed on the ranks of another.

    Raises:
        LayoutError, InvalidArgument: as `pose` does.
    """
    with in_time(spec, case, limit):
        layout = _layout(spec, case)
        return placed_ends(layout, case, posed.problems[0].inputs[0], list(posed.outputs))


@dataclass(frozen=True)
class _Drawn:
    """A case with all its numbers, and the runs of its reference.

    Args:
        params, named, computed, frozen, buffers: as `Posed` has them.
        studied: problems of dp coordinates that share one gradient, with their runs.
        limit: seconds, as of `pose`.
    """

    spec: Spec
    case: Case
    layout: Layout
    params: dict[str, Entry]
    named: frozenset[str]
    computed: frozenset[str]
    frozen: frozenset[str]
    buffers: frozenset[str]
    studied: list[tuple[list[Problem], Study]]
    limit: float

    def posed(self, effort: Effort) -> Posed:
        problems, placed = [], Placed(self.params, {}, {}, {})
        began = [runs.begun(effort) for _, runs in self.studied]
        if SCREEN in began and effort is FLOOR:
            return self.posed(SCREEN)
        late = frozenset[int]().union(*(runs.overflowed(effort) for _, runs in self.studied))
        coarse = any(runs.noise.coarse for _, runs in self.studied)
        for group, runs in self.studied:
            for problem, expected in zip(group, runs.expected(effort, late), strict=True):
                placed = placed_tensors(self.layout, self.case, self.params, problem, expected)
                problems.append(_with_targets(self.case, problem, expected, placed))
            if effort is CONFIRM:  # nothing is closer
                runs.forget()
        shared = self.spec.shares_gradients
        about = (placed.inputs, placed.outputs, self.named, self.computed, self.frozen)
        known = any(runs.notes for _, runs in self.studied)
        more = (effort, shared, self.closely, self.rounded if known else None, coarse)
        return Posed(self.case, problems, self.params, *about, *more, self.buffers, late)

    def rounded(self, d: int, kind: Kind, name: str, at: Tensor) -> Tensor | None:
        with in_time(self.spec, self.case, self.limit):
            for group, runs in self.studied:
                for i, problem in enumerate(group):
                    if problem.d == d:
                        return runs.rounded(i, (kind, name), at)
        return None

    def closely(self, effort: Effort) -> Posed:
        with in_time(self.spec, self.case, self.limit * effort.patience):
            return self.posed(effort)


def _draw(spec: Spec, case: Case, watch: Pass | None, limit: float, *, ones: bool) -> _Drawn:
    layout = _layout(spec, case)
    of = references(spec, case)
    state = draw_state(spec, case, of.exact)
    check_names("parameter", state)
    params = placed_params(layout, case, state)
    overflow = draw_overflow(spec, case, of.exact)
    drawn = [_drawn(spec, case, d, state, overflow, ones=ones) for d in range(case.dp)]
    own, shared = list(drawn[0].inputs[0]), spec.shares_gradients
    terms = terms_of(layout, case, list(state), own, shared=shared)
    drawn = [replace(problem, terms=terms) for problem in drawn]
    check_names("input", drawn[0].inputs[0])
    groups = [drawn] if shared else [[problem] for problem in drawn]
    passes = [Passes(spec, case, group, torch.float64, watch) for group in groups]
    studied = [(group, study(own, of)) for group, own in zip(groups, passes, strict=True)]
    named = _named(layout, state)
    of_module = isinstance(of.exact, nn.Module)
    computed = computed_buffers(of.exact) if of_module else frozenset[str]()
    frozen = case_mode.frozen_in(of.exact)
    buffers = params.keys() - (parameters_of(of.exact) if of_module else {}).keys()
    about = named, computed, frozen, frozenset(buffers)
    return _Drawn(spec, case, layout, params, *about, studied, limit)


def _named(layout: Layout, state: Mapping[str, Tensor]) -> frozenset[str]:
    return frozenset(layouts.matched("params", layout.params, list(state)))


def _layout(spec: Spec, case: Case) -> Layout:
    """The case's layout, where the case can be."""
    reason = ask(spec, "requires", spec.requires, case) if spec.requires else None
    if reason and not isinstance(reason, str):
        raise InvalidArgument(
            f"spec {spec.name!r}: requires(case) returned {shown(reason)}; return None where the "
            "case can be, and a line that says why where it can't"
        )
    if reason:
        raise CaseError(reason)
    if case.memory == "aliased" and case.world_size > 1:
        raise CaseError("case.memory='aliased' is for one rank: shards of one tensor may differ")
    if case.mode in case_mode.FREEZING and (spec.norm is not None or spec.training is not None):
        raise CaseError(
            f"case.mode={case.mode!r}: the spec's norm, or optimizer, is of all gradients"
        )
    layout = ask(spec, "layout", spec.layout, case)
    if not isinstance(layout, Layout):
        given = type(layout).__name__
        raise InvalidArgument(f"spec {spec.name!r}: layout(case) returned a {given}, not a Layout")
    return layout


def _drawn(
    spec: Spec,
    case: Case,
    d: int,
    state: dict[str, Tensor],
    overflow: Overflow | None,
    *,
    ones: bool,
) -> Problem:
    """The state and the inputs of a dp coordinate; its cotangents need the outputs' shapes."""
    passes = case.microbatches * (spec.training.steps if spec.training else 1)
    inputs = [draw_inputs(spec, case, d, m) for m in range(passes)]
    return Problem(d, state, inputs, overflow=overflow, tied=_tied(state), ones=ones)


def _tied(state: Mapping[str, Tensor]) -> frozenset[str]:
    """Names of tensors that have an earlier one."""
    first = {id(tensor): name for name, tensor in reversed([*state.items()])}
    return frozenset(name for name, tensor in state.items() if first[id(tensor)] != name)


def _with_targets(case: Case, problem: Problem, expected: Expected, placed: Placed) -> Problem:
    """The problem with its cotangents, and everything that the ranks are to compare."""
    targets: list[Target] = []
    borders: list[Target] = []
    for key, value in expected.values.items():
        entry = placed.entry(key)
        placement.check(key[1], value, entry, case=case)
        of_border = key[0] == Shelf.BORDER
        kind = Kind.OUTPUT if of_border else Kind(key[0])
        own, unused = expected.own[key], key in expected.unused
        exact = None if own.is_floating_point() else as_int64(value)
        about = (entry, own.dtype, value.double(), expected.spreads[key], unused, own, exact)
        (borders if of_border else targets).append(Target(kind, key[1], *about))
    found = replace(problem, targets=targets, borders=borders)
    found = replace(found, cotangents=expected.cotangents, masks=expected.masks)
    return replace(found, most=list(expected.most), idle=expected.idle)
