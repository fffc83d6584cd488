"""How each tensor of a case is placed: as its layout says, or as follows from that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from tpcheck import layout as layouts
from tpcheck import placement
from tpcheck.case import Case
from tpcheck.errors import LayoutError
from tpcheck.layout import Layout
from tpcheck.oracle.expected import Expected
from tpcheck.oracle.spreads import Key
from tpcheck.placement import Entry, Partial, Replicate
from tpcheck.protocol.optimizing import parameter_of
from tpcheck.protocol.problem import Problem
from tpcheck.protocol.scaling import SCALE
from tpcheck.tensors.names import FIRST, InPass, Shelf
from tpcheck.tensors.terms import has_terms
from tpcheck.vocabulary import Kind


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
        entry = (self.inputs if kind == Kind.INPUT_GRAD else self.params)[base]
        return placement.summed(entry) if has_terms(entry) else entry  # each has the whole gradient


def placed_params(layout: Layout, case: Case, state: Mapping[str, Tensor]) -> dict[str, Entry]:
    params = layouts.resolve("params", layout.params, list(state))
    for name, entry in params.items():
        if has_terms(entry):
            raise LayoutError(
                f"Layout(params=…): {name!r} is Partial(), and no rank holds a term of a "
                "parameter; inputs, outputs and grads may be Partial"
            )
        placement.check(name, state[name], entry, case=case)
    return params


def placed_tensors(
    layout: Layout, case: Case, params: dict[str, Entry], problem: Problem, expected: Expected
) -> Placed:
    """How the tensors of a problem are placed: its inputs are checked here, since the layout may
    name one that the spec does not give."""
    names = list(problem.inputs[0])
    inputs, outputs = placed_ends(layout, case, problem.inputs[0], _outputs(expected))
    grads = layouts.matched("grads", layout.grads, [*params, *names])
    return Placed(params, inputs, outputs, grads, _placed_states(layout, params, problem, expected))


def terms_of(
    layout: Layout, case: Case, params: list[str], inputs: list[str], *, shared: bool
) -> frozenset[str]:
    """The parameters of whose gradient ranks keep terms, by the layout: a later step sums them.

    Args:
        shared: whether a parameter's gradient is combined over dp.
    """
    grads = layouts.matched("grads", layout.grads, [*params, *inputs])
    own = grads.keys() & set(params)
    _without_dp("grads", {name: grads[name] for name in grads.keys() - own})
    for name in sorted(own) if not shared else ():
        if isinstance(placement.by_axis(grads[name]).get("dp"), Partial):
            raise LayoutError(
                f"grads: {name!r} is Partial() along dp, but under Spec(dp_gradients='local') a "
                "gradient is that of each dp coordinate's own data; give dp_gradients='sum' or "
                "'mean', or leave dp out"
            )
    return frozenset(name for name in own if terms_over(grads[name], case))


def terms_over(entry: Entry, case: Case) -> list[str]:
    """The mesh axes, of more than one rank, over which ranks hold terms of a tensor's sum."""
    return [
        axis
        for axis, own in placement.by_axis(entry).items()
        if isinstance(own, Partial) and case.mesh.get(axis, 1) > 1
    ]


def placed_ends(
    layout: Layout, case: Case, given: Mapping[str, Tensor], returned: list[str]
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """How inputs and outputs are placed.

    Args:
        given: the inputs, full.
        returned: the outputs' names.
    """
    inputs = layouts.resolve("inputs", layout.inputs, list(given))
    _without_dp("inputs", inputs)
    for name, entry in inputs.items():
        placement.check(name, given[name], entry, case=case)
    outputs = layouts.resolve("outputs", layout.outputs, returned)
    _without_dp("outputs", outputs)
    return inputs, outputs


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
        if name == SCALE:
            found[name] = Replicate()
            continue
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
        own = placement.by_axis(entry).get("dp", Replicate())
        if isinstance(own, placement.Sharded | Partial):
            how = "a term of a sum" if isinstance(own, Partial) else "sharded"
            raise LayoutError(
                f"{group}: {name!r} is {how} along dp, but each dp coordinate has data of its "
                "own; leave dp out"
            )
