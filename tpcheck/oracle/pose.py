"""The reference side of a case: every number drawn, every value expected, every bound.

`pose(spec, case)` gives what the ranks of each dp coordinate are handed: one `Problem` each, whose
data differ. Letters: d = dp coordinate, m = microbatch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tpcheck import layout as layouts
from tpcheck import placement
from tpcheck.case import Case
from tpcheck.comms import frames
from tpcheck.errors import CaseError, InvalidArgument, LayoutError, let_through
from tpcheck.layout import Layout
from tpcheck.oracle.effort import SCREEN, Effort
from tpcheck.oracle.expected import Expected, expect
from tpcheck.oracle.limit import TimeUp, within
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.reference import (
    ask,
    draw_inputs,
    draw_state,
    references,
)
from tpcheck.oracle.spreads import Key
from tpcheck.placement import Entry, Replicate
from tpcheck.process.surroundings import same_filters
from tpcheck.protocol.optimizing import parameter_of
from tpcheck.protocol.problem import Problem, Target
from tpcheck.spec import Spec
from tpcheck.tensors.forms import as_int64
from tpcheck.tensors.names import FIRST, InPass, Pass, Shelf, check_names
from tpcheck.vocabulary import Kind

#: Seconds that posing a case may take: a reference of ordinary size takes less than one. Shorter
#: would refuse large references on a busy machine; longer is waited for where one never ends.
LIMIT = 60.0


@dataclass(frozen=True)
class Posed:
    """A case with all its numbers, a `Problem` for each dp coordinate, its layout resolved.

    Args:
        params, inputs, outputs: name → how it is placed.
        named: parameters that the layout names itself.
        effort: with which the bounds were measured.
        shared: whether all dp coordinates have the same gradients of parameters.
    """

    case: Case
    problems: list[Problem]
    params: dict[str, Entry]
    inputs: dict[str, Entry]
    outputs: dict[str, Entry]
    named: frozenset[str] = frozenset()
    effort: Effort = SCREEN
    shared: bool = False


@dataclass(frozen=True)
class Placed:
    """How each tensor of a case is placed, by name; `grads` are those that the layout names,
    `states` those of an optimizer."""

    params: dict[str, Entry]
    inputs: dict[str, Entry]
    outputs: dict[str, Entry]
    grads: dict[str, Entry]
    states: dict[str, Entry] = field(default_factory=dict)

    def entry(self, key: Key) -> Entry:
        """Of an output, a gradient, a parameter; what crosses a boundary inside is kept whole."""
        kind, name = key
        if kind == Shelf.BORDER:
            return Replicate()
        if kind == Kind.GRAD_NORM:
            return Replicate()
        base = InPass.parse(name).base
        if kind == Kind.OPTIMIZER_STATE:
            return self.states[base]
        if Kind(kind).is_output:
            return self.outputs.get(base, Replicate())
        if Kind(kind).is_gradient and base in self.grads:
            return self.grads[base]
        return (self.inputs if kind == Kind.INPUT_GRAD else self.params)[base]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Tiny operations gain nothing from more threads, and lose much where the ranks keep the cores
    busy. The process's own setting comes back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def pose(
    spec: Spec,
    case: Case,
    effort: Effort = SCREEN,
    *,
    watch: Pass | None = None,
    ones: bool = False,
    limit: float = LIMIT,
) -> Posed:
    """Draws the case and computes what is expected of it.

    Args:
        effort: how closely the bounds are measured.
        watch: the pass whose tensors at module boundaries are noted, too.
        ones: whether cotangents are ones, as those of a `.sum()` loss are, in place of random.
        limit: seconds that it may take under SCREEN.

    Raises:
        CaseError: the spec says that the case can't be.
        LayoutError: the layout names a missing tensor or a split that the shapes don't allow.
        InvalidArgument: one of the spec's callables raises, exits, takes too long, or returns
            something else.
    """
    with in_time(spec, case, limit * effort.patience):
        return _posed(spec, case, effort, watch, ones=ones)


@contextlib.contextmanager
def in_time(spec: Spec, case: Case, seconds: float) -> Iterator[None]:
    """Nothing in the block runs for ever, or ends the driver: either is the spec's trouble; nor
    does it make errors of others' warnings."""
    try:
        with same_filters(), within(seconds):
            yield
    except TimeUp:
        raise InvalidArgument(
            f"spec {spec.name!r}: its reference took longer than {seconds:g} s in "
            f"{case.describe()}; give smaller sizes, or a larger --time-limit"
        ) from None
    except Exception:
        raise
    except BaseException as error:
        let_through(error)
        raise InvalidArgument(f"spec {spec.name!r}: {frames.in_a_line(error)}") from error


def _posed(spec: Spec, case: Case, effort: Effort, watch: Pass | None, *, ones: bool) -> Posed:
    layout = _layout(spec, case)
    of = references(spec, case)
    state = draw_state(spec, case, of.exact)
    check_names("parameter", state)
    params = _placed_params(layout, case, state)
    shared = spec.dp_gradients != "local"
    drawn = [_drawn(spec, case, d, state, ones=ones) for d in range(case.dp)]
    check_names("input", drawn[0].inputs[0])
    problems, placed = [], Placed(params, {}, {}, {})
    for group in [drawn] if shared else [[problem] for problem in drawn]:
        passes = Passes(spec, case, group, torch.float64, watch)
        for problem, expected in zip(group, expect(passes, of, effort), strict=True):
            placed = _placed(layout, case, params, problem, expected)
            problems.append(_with_targets(case, problem, expected, placed))
    named = frozenset(layouts.matched("params", layout.params, list(state)))
    about = (placed.inputs, placed.outputs, named, effort, shared)
    return Posed(case, problems, params, *about)


def _layout(spec: Spec, case: Case) -> Layout:
    """The case's layout, where the case can be."""
    reason = ask(spec, "requires", spec.requires, case) if spec.requires else None
    if reason:
        raise CaseError(reason)
    if case.memory == "aliased" and case.world_size > 1:
        raise CaseError("case.memory='aliased' is for one rank: shards of one tensor may differ")
    layout = ask(spec, "layout", spec.layout, case)
    if not isinstance(layout, Layout):
        given = type(layout).__name__
        raise InvalidArgument(f"spec {spec.name!r}: layout(case) returned a {given}, not a Layout")
    return layout


def _drawn(spec: Spec, case: Case, d: int, state: dict[str, Tensor], *, ones: bool) -> Problem:
    """The state and the inputs of a dp coordinate; its cotangents need the outputs' shapes."""
    passes = case.microbatches * (spec.training.steps if spec.training else 1)
    inputs = [draw_inputs(spec, case, d, m) for m in range(passes)]
    return Problem(d, state, inputs, ones=ones)


def _placed_params(layout: Layout, case: Case, state: Mapping[str, Tensor]) -> dict[str, Entry]:
    params = layouts.resolve("params", layout.params, list(state))
    for name, entry in params.items():
        placement.check(name, state[name], entry, case=case)
    return params


def _placed(
    layout: Layout, case: Case, params: dict[str, Entry], problem: Problem, expected: Expected
) -> Placed:
    """How the tensors of a problem are placed: its inputs are checked here, since the layout may
    name one that the spec does not give."""
    names = list(problem.inputs[0])
    inputs = layouts.resolve("inputs", layout.inputs, names)
    _without_dp("inputs", inputs)
    for name, entry in inputs.items():
        placement.check(name, problem.inputs[0][name], entry, case=case)
    outputs = layouts.resolve("outputs", layout.outputs, _outputs(expected))
    _without_dp("outputs", outputs)
    grads = layouts.matched("grads", layout.grads, [*params, *names])
    return Placed(params, inputs, outputs, grads, _placed_states(layout, params, problem, expected))


def _placed_states(
    layout: Layout, params: dict[str, Entry], problem: Problem, expected: Expected
) -> dict[str, Entry]:
    """How each tensor of an optimizer's state is placed: as the layout says, or as its parameter's
    dims are split.

    Raises:
        LayoutError: neither says it.
    """
    kept = {
        InPass.parse(name).base: tuple(value.shape)
        for (kind, name), value in expected.values.items()
        if kind == Kind.OPTIMIZER_STATE
    }
    named = layouts.matched("states", layout.states, list(kept))
    found: dict[str, Entry] = {}
    for name, shape in kept.items():
        own = parameter_of(name, params)
        assert own is not None, "named by its parameter"
        full = tuple(problem.params[own].shape)
        entry = named.get(name, placement.follows(params[own], shape, full))
        if entry is None:
            raise LayoutError(
                f"the optimizer's state {name!r} has the shape {shape}, and its parameter {full}: "
                f"say how it is placed, as in Layout(states={{{name!r}: Replicate()}})"
            )
        found[name] = entry
    return found


def _outputs(expected: Expected) -> list[str]:
    """The names of a forward's results."""
    named = [(kind, InPass.parse(name)) for kind, name in expected.values if kind != Shelf.BORDER]
    return [name.base for kind, name in named if Kind(kind).is_output and name.at == FIRST]


def _without_dp(group: str, entries: Mapping[str, Entry]) -> None:
    for name, entry in entries.items():
        if isinstance(placement.by_axis(entry).get("dp"), placement.Sharded):
            raise LayoutError(
                f"{group}: {name!r} is sharded along dp, but each dp coordinate has data of its "
                "own; leave dp out"
            )


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
    return replace(found, most=list(expected.most))
