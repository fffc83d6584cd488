"""The reference side of a case: every number drawn, every value expected, every bound.

`pose(spec, case)` runs the reference once a case (and once for each other dp coordinate, whose
data differ): in float64 for the values, a few times under `RoundingNoise` for the bounds, and
once in the case's dtype for what overflows there and which dtype each output has.

Letters: d = dp coordinate, m = microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tpcheck import placement
from tpcheck.bounds import integers, projection
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.spread import FALSE_ALARM, MARGIN, STRAIN, SUSPICION, Spread, spread
from tpcheck.case import Case
from tpcheck.comms import frames
from tpcheck.errors import CaseError, InvalidArgument, LayoutError
from tpcheck.oracle.passes import Passes
from tpcheck.placement import Entry, Layout
from tpcheck.protocol.problem import Problem, Target, Values
from tpcheck.spec import Spec
from tpcheck.tensors import draw as drawing
from tpcheck.tensors.draw import Draw, torch_dtype
from tpcheck.tensors.names import tensors_of
from tpcheck.tensors.strides import repeat_first_row

# What an all-reduce of partial sums produces, forward and backward.
PROJECTED = ("output", "loss", "input_grad", "param_grad")


@dataclass(frozen=True)
class Look:
    """How closely the rounding of a case is looked at.

    Args:
        runs: noisy runs, by dtype.
        strained: pairs of runs under enlarged errors and their mirror image.
        chance: of an alarm over a correct tensor.
    """

    runs: Mapping[str, int]
    strained: int
    chance: float


# Every case is posed with a few runs; what that suspects is judged again with many.
GLANCE = Look({"float64": 2, "float32": 3, "bfloat16": 4, "float16": 4}, 0, SUSPICION)
STUDY = Look({"float64": 24, "float32": 32, "bfloat16": 48, "float16": 48}, 8, FALSE_ALARM)


@dataclass
class Posed:
    """A case with all its numbers, a `Problem` for each dp coordinate, its layout resolved."""

    case: Case
    problems: list[Problem]
    params: dict[str, Entry]
    inputs: dict[str, Entry]
    outputs: dict[str, Entry]
    named: frozenset[str] = frozenset()  # parameters that the layout names itself
    look: Look = GLANCE
    shared: bool = False  # whether all dp coordinates have the same gradients of parameters


def ask(spec: Spec, what: str, call: Callable[..., Any], *given: Any) -> Any:
    """Calls one of the spec's callables; what it raises is its author's to mend: one line."""
    try:
        return call(*given)
    except InvalidArgument:
        raise
    except Exception as error:
        own = frames.users(error)
        at = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
        reason = " ".join(str(error).split())[:300]
        raise InvalidArgument(
            f"spec {spec.name!r}: {what} raised {type(error).__name__}: {reason}{at}"
        ) from error


def build_reference(spec: Spec, case: Case) -> Any:
    """The reference of this case, a module in float64 (a function is returned as it is)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        module = ask(spec, "reference", spec.reference, case)
    return module.to(torch.float64) if isinstance(module, nn.Module) else module


def _draw_state(spec: Spec, case: Case, module: Any) -> dict[str, Tensor]:
    """Every parameter and buffer, full, away from its default, in the case's dtype."""
    if not isinstance(module, nn.Module):
        return {}
    draw = Draw(case, "state")
    buffers = dict(module.named_buffers(remove_duplicate=False))
    drawn: dict[int, Tensor] = {}
    out = {}
    for name, tensor in tensors_of(module).items():
        if id(tensor) not in drawn:
            given = spec.init(name, tuple(tensor.shape), draw) if spec.init else None
            if case.integers and tensor.is_floating_point():
                given = integers.integers(draw, name, tensor)
            if given is None:
                given = drawing.state(draw, name, tensor, buffer=name in buffers)
            floats = given.is_floating_point()
            drawn[id(tensor)] = given.to(torch_dtype(case)) if floats else given
        out[name] = drawn[id(tensor)]
    return out


def _draw_inputs(spec: Spec, case: Case, d: int, m: int) -> dict[str, Tensor]:
    out = {}
    draw = Draw(case, "input", d, m)
    given = ask(spec, "inputs", spec.inputs, case, draw)
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"spec {spec.name!r}: inputs() returned a {type(given).__name__}")
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise InvalidArgument(f"inputs()[{name!r}] is a {type(tensor).__name__}, not a tensor")
        if tensor.is_floating_point():
            if case.integers:
                tensor = integers.integers(draw, name, tensor)
            tensor = tensor * 2.0**case.magnitude
            if case.memory == "expanded":
                tensor = repeat_first_row(tensor)
            tensor = tensor.to(torch_dtype(case))
        out[name] = tensor
    return out


def pose(
    spec: Spec,
    case: Case,
    look: Look = GLANCE,
    *,
    watch: int | str | None = None,
    ones: bool = False,
) -> Posed:
    """As `_pose`, on one thread: tiny operations gain nothing from more, and lose much where the
    ranks keep the cores busy. The process's own setting comes back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _pose(spec, case, look, watch, ones)
    finally:
        torch.set_num_threads(threads)


def _pose(spec: Spec, case: Case, look: Look, watch: int | str | None, ones: bool) -> Posed:
    """Draws the case and computes what is expected of it.

    Args:
        watch: the pass (a microbatch, or `step`) whose tensors at module borders are noted, too.
        ones: whether cotangents are ones, as those of a `.sum()` loss are, in place of random.

    Raises:
        CaseError: the spec says that the case can't be.
        LayoutError: the layout names a missing tensor or a split that the shapes don't allow.
    """
    reason = ask(spec, "requires", spec.requires, case) if spec.requires else None
    if reason:
        raise CaseError(reason)
    layout = ask(spec, "layout", spec.layout, case)
    if not isinstance(layout, Layout):
        given = type(layout).__name__
        raise InvalidArgument(f"spec {spec.name!r}: layout(case) returned a {given}, not a Layout")
    module = build_reference(spec, case)
    state = _draw_state(spec, case, module)
    params = placement.resolve("params", layout.params, list(state))
    named = frozenset(placement.matched("params", layout.params, list(state)))
    posed = Posed(case, [], params, {}, {}, named, look, shared=spec.dp_gradients != "local")
    for name, entry in posed.params.items():
        placement.check(name, state[name], entry, case=case)
    low = _in_dtype(spec, case, module)
    for d in range(case.dp):
        problem = Problem(d, params=state, ones=ones)
        problem.inputs = [_draw_inputs(spec, case, d, m) for m in range(case.microbatches)]
        posed.problems.append(problem)
    apart = [[problem] for problem in posed.problems]
    for together in apart if spec.dp_gradients == "local" else [posed.problems]:
        expected = _expect(spec, case, together, module, low, look, watch)
        for problem, (values, spreads, own, unused) in zip(together, expected, strict=True):
            names = list(problem.inputs[0])
            posed.inputs = placement.resolve("inputs", layout.inputs, names)
            _without_dp("inputs", posed.inputs)
            for name, entry in posed.inputs.items():
                placement.check(name, problem.inputs[0][name], entry, case=case)
            outputs = [n for k, n in values if k in ("output", "loss") and "@" not in n]
            posed.outputs = placement.resolve("outputs", layout.outputs, outputs)
            _without_dp("outputs", posed.outputs)
            grads = placement.matched("grads", layout.grads, [*state, *names])
            for (kind, name), value in values.items():
                key, border = (kind, name), kind == "border"
                entry = placement.Replicate() if border else _entry(posed, grads, kind, name)
                placement.check(name, value, entry, case=case)
                about = (entry, own[key].dtype, value.double(), spreads[key], key in unused)
                target = Target(kind, name, *about, own=own[key])
                (problem.borders if border else problem.targets).append(target)
    return posed


def _without_dp(kind: str, entries: Mapping[str, placement.Entry]) -> None:
    for name, entry in entries.items():
        if isinstance(placement.by_axis(entry).get("dp"), placement.Sharded):
            raise LayoutError(
                f"{kind}: {name!r} is cut along dp, but each dp coordinate has data of its own; "
                "leave dp out"
            )


def evaluate(spec: Spec, case: Case, *problems: Problem) -> list[Values]:
    """What the reference gives in float64 for problems that may have been altered: one, or those
    of all dp coordinates where they share their gradients."""
    return Passes(spec, case, list(problems), torch.float64)(build_reference(spec, case))


def _entry(posed: Posed, grads: Mapping[str, Entry], kind: str, name: str) -> Entry:
    base = name.split("@")[0]
    if kind in ("output", "loss"):
        return posed.outputs.get(base, placement.Replicate())
    own = posed.params if kind in ("param", "param_grad") else posed.inputs
    if kind in ("param_grad", "input_grad") and base in grads:
        return grads[base]
    return own[base]


def _in_dtype(spec: Spec, case: Case, module: Any) -> Any:
    """The reference in the case's dtype. Built anew: one that holds process groups can't be
    copied; the state is copied in before each run anyway."""
    if not isinstance(module, nn.Module) or case.dtype == "float64":
        return module
    return build_reference(spec, case).to(torch_dtype(case))


Expected = tuple[Values, dict[tuple[str, str], Spread], Values, set[tuple[str, str]]]


def _expect(
    spec: Spec,
    case: Case,
    problems: list[Problem],
    module: Any,
    low: Any,
    look: Look,
    watch: int | str | None,
) -> list[Expected]:
    """Values, spreads, results in the case's dtype and unused gradients, by problem."""
    dtype = torch_dtype(case)
    run = Passes(spec, case, problems, torch.float64, watch)
    scales: list[Any] = []

    def deviations(right: list[Values], k: int, amplitude: float = 1.0) -> list[Values]:
        """How far off a run is under the errors drawn from stream `k`, by problem."""
        errors = drawing.generator(case, "noise", problems[0].d, k)
        with RoundingNoise(dtype, case.tp, errors, scales, amplitude) as noise:
            noisy = run(module)
        return [
            {key: (off[key].double() - value.double()) / noise.gain for key, value in of.items()}
            for off, of in zip(noisy, right, strict=True)
        ]

    with sdpa_kernel([SDPBackend.MATH]):  # the decomposed form, whose roundings can be modelled
        values = ask(spec, "reference's forward or backward", run, module)
        runs = look.runs[case.dtype]
        noisy = [deviations(values, k) for k in range(runs)]
        pairs = range(runs, runs + look.strained) if case.dtype != "float64" else ()
        strained = [[deviations(values, k, a) for a in (STRAIN, -STRAIN)] for k in pairs]
    # with torch's own choice of kernels: another order of the same computation
    own = Passes(spec, case, problems, dtype, watch)(low)
    sizes = _sizes(spec, case, problems, module) if case.integers else None
    expected: list[Expected] = []
    for i, right in enumerate(values):
        given = problems[i].inputs[0]
        repeats = projection.repeats_of(given, expanded=case.memory == "expanded")
        spreads: dict[tuple[str, str], Spread] = {}
        for key, value in right.items():
            finite = own[i][key].isfinite() & value.isfinite()
            errors = (
                [off[i][key] for off in noisy],
                torch.where(finite, own[i][key].double() - value.double(), 0.0),
                [(up[i][key], down[i][key]) for up, down in strained],
            )
            found = spread(*errors[:2], dtype=dtype, strained=errors[2], chance=look.chance)
            # what overflows in the case's dtype may overflow, or not, in another order too
            sigma = torch.where(finite, found.sigma, torch.full_like(found.sigma, torch.inf))
            found = replace(found, sigma=sigma)
            spreads[key] = _with_gain(key[0], found, value, errors, repeats, dtype)
        if sizes:
            spreads = integers.spreads(spreads, sizes[i], dtype)
        expected.append((right, spreads, own[i], run.unused))
    return expected


def _sizes(spec: Spec, case: Case, problems: list[Problem], module: Any) -> list[Values]:
    """The values of a linear spec over the sizes of all drawn numbers: Σ |term| of each element."""

    def of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {n: t.abs() if t.is_floating_point() else t for n, t in tensors.items()}

    positive = [
        Problem(
            p.d,
            params=of(p.params),
            inputs=[of(inputs) for inputs in p.inputs],
            cotangents=[of(cotangents) for cotangents in p.cotangents],
        )
        for p in problems
    ]
    return Passes(spec, case, positive, torch.float64)(module)


def _with_gain(
    kind: str,
    found: Spread,
    value: Tensor,
    errors: tuple[list[Tensor], Tensor, list[tuple[Tensor, Tensor]]],
    repeats: int,
    dtype: torch.dtype,
) -> Spread:
    """`found` with the σ of the tensor's projection on itself, where that is judged."""
    if kind not in PROJECTED or not value.numel():
        return found
    deviations, own, strained = errors
    known = (value.double(), found.sigma, deviations, own, strained)
    measured, runs = projection.scale(*known, repeats=repeats)
    scaled = measured * MARGIN.get(dtype, 1.0)
    return replace(found, gain=scaled, runs=runs, elements=value.numel())
