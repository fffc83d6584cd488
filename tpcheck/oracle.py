"""The reference side of a case: every number drawn, every value expected, every bound.

`pose(spec, case)` runs the reference once a case (and once for each other dp coordinate, whose
data differ): in float64 for the values, a few times under `RoundingNoise` for the bounds, and
once in the case's dtype for what overflows there and which dtype each output has.

Letters: d = dp coordinate, m = microbatch.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tpcheck import draw as drawing
from tpcheck import exact, gain, placement
from tpcheck.borders import Watch
from tpcheck.case import Case
from tpcheck.draw import Draw, torch_dtype
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.memory import repeat_first_row
from tpcheck.names import buffers_of, tensors_of
from tpcheck.noise import RoundingNoise
from tpcheck.placement import Entry, Layout
from tpcheck.spec import Spec
from tpcheck.tolerance import FALSE_ALARM, MARGIN, STRAIN, SUSPICION, Spread, spread

LEARNING_RATE = 2.0**-4
# What an all-reduce of partial sums produces, forward and backward.
PROJECTED = ("output", "loss", "input_grad", "param_grad")

Values = dict[tuple[str, str], Tensor]  # (kind, name) → tensor


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


@dataclass(frozen=True)
class Target:
    """One tensor to compare: the full expected value and its σ, float64, of one shape."""

    kind: str
    name: str
    entry: Entry
    dtype: torch.dtype
    value: Tensor
    spread: Spread
    unused: bool = False  # the reference's gradient is None: the candidate's may be, too
    own: Tensor | None = None  # the reference's own result in the case's dtype: for `rules`


@dataclass
class Problem:
    """What the ranks of dp coordinate `d` are given: full tensors in the case's dtype."""

    d: int = 0
    params: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[dict[str, Tensor]] = field(default_factory=list)  # [m]
    cotangents: list[dict[str, Tensor]] = field(default_factory=list)  # [m]
    targets: list[Target] = field(default_factory=list)
    borders: list[Target] = field(default_factory=list)  # in the order of computation, full
    ones: bool = False  # cotangents of ones, as a `.sum()` loss has: for `rules`


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


def named_outputs(result: Any) -> dict[str, Tensor]:
    """A module's result as name → tensor: `output`, `output.0` …, or the keys of a mapping;
    nested ones by path (`output.1.aux`). What is no tensor is left out."""
    if isinstance(result, Tensor):
        return {"output": result}
    if isinstance(result, (Mapping, tuple, list)):
        return dict(_flattened(result, "" if isinstance(result, Mapping) else "output"))
    raise InvalidArgument(
        f"forward returned a {type(result).__name__}; return a tensor, a tuple or a dict of tensors"
    )


def _flattened(result: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(result, Tensor):
        yield path, result
    elif isinstance(result, (Mapping, tuple, list)):
        pairs = result.items() if isinstance(result, Mapping) else enumerate(result)
        for key, value in pairs:
            yield from _flattened(value, f"{path}.{key}" if path else str(key))


def forward(spec: Spec, module: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One forward as the spec says, reference and candidate alike."""
    result = spec.forward(module, inputs) if spec.forward else module(*inputs.values())
    return named_outputs(result)


def at(name: str, pass_: int | str) -> str:
    """`x`, `x@1`, `x@step`: a tensor's name in one pass."""
    return name if pass_ == 0 else f"{name}@{pass_}"


def differentiable(outputs: Mapping[str, Tensor]) -> list[str]:
    """The outputs that take a cotangent."""
    return [name for name, t in outputs.items() if t.is_floating_point()]


def output_kind(name: str) -> str:
    """The mismatch kind of an output: a loss is told apart by its name."""
    return "loss" if name.split("@")[0].split(".")[-1] == "loss" else "output"


class _Run:
    """One pass of the whole case through a module: forwards, backwards, and perhaps a step.

    Args:
        problems: of the dp coordinates that share one gradient: one, or all of them.
        watch: the pass (a microbatch, or `step`) in which module borders are watched, or None.
    """

    def __init__(
        self,
        spec: Spec,
        case: Case,
        problems: list[Problem],
        dtype: torch.dtype,
        watch: int | str | None = None,
    ) -> None:
        self.spec, self.case, self.problems, self.dtype = spec, case, problems, dtype
        self.watch = watch
        self.unused: set[tuple[str, str]] = set()

    def __call__(self, module: Any) -> list[Values]:
        """Values by problem; what belongs to the parameters is the same in each."""
        params = _load(module, self.problems[0].params)
        values = [self._passes(module, problem) for problem in self.problems]
        grads: Values = {}
        if self.spec.dp_gradients == "mean":
            for param in set(params.values()):  # tied ones once
                if param.grad is not None:
                    param.grad /= len(self.problems)
        for name, param in params.items():
            if param.requires_grad:
                grads["param_grad", name] = _gradient(param)
                self.unused |= {("param_grad", name)} if param.grad is None else set()
        values = [own | grads for own in values]
        if self.case.step and params:
            sgd_step(params.values())
            stepped: Values = {("param", n): p.detach().clone() for n, p in params.items()}
            after = [self._after_step(module, problem) for problem in self.problems]
            values = [own | stepped | more for own, more in zip(values, after, strict=True)]
        if len(self.problems) == 1:  # of several, each would go on where the last one ended
            values[0] |= {("param", n): b.detach().clone() for n, b in float_buffers(module)}
        return values

    def _passes(self, module: Any, problem: Problem) -> Values:
        """Forward and backward of every microbatch; gradients of parameters add up."""
        values: Values = {}
        for m, inputs in enumerate(problem.inputs):
            leaves = {name: self._leaf(t) for name, t in inputs.items()}
            with self._watching(module, m) as seen:
                outputs = forward(self.spec, module, leaves)
                values |= {(output_kind(k), at(k, m)): t.detach() for k, t in outputs.items()}
                names = [n for n in differentiable(outputs) if outputs[n].requires_grad]
                if m == len(problem.cotangents):
                    problem.cotangents.append(self._draw_cotangents(problem, outputs, m))
                seeds = [problem.cotangents[m][n].to(outputs[n].dtype) for n in names]
                if names:
                    torch.autograd.backward([outputs[n] for n in names], seeds)
            values |= {("border", key): t for key, t in seen.items()}
            for name, leaf in leaves.items():
                if leaf.requires_grad:
                    values["input_grad", at(name, m)] = _gradient(leaf)
                    self.unused |= {("input_grad", at(name, m))} if leaf.grad is None else set()
        return values

    @contextlib.contextmanager
    def _watching(self, module: Any, m: int | str) -> Iterator[dict[str, Tensor]]:
        """What crosses the module's borders in this pass; nothing where it is not watched."""
        if m != self.watch or not isinstance(module, nn.Module):
            yield {}
            return
        with Watch(module) as watch:
            yield watch.seen

    def _leaf(self, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.clone()
        return tensor.to(self.dtype, copy=True).requires_grad_()

    def _draw_cotangents(
        self, problem: Problem, outputs: Mapping[str, Tensor], m: int
    ) -> dict[str, Tensor]:
        out = {}
        for name in differentiable(outputs):
            draw = Draw(self.case, "cotangent", problem.d, m)
            full = drawing.cotangent(draw, name, outputs[name])
            full = torch.ones_like(full) if problem.ones else full
            full = exact.integers(draw, name, full) if self.case.integers else full
            if self.case.memory == "expanded":
                full = repeat_first_row(full)
            out[name] = full.to(torch_dtype(self.case))
        return out

    def _after_step(self, module: Any, problem: Problem) -> Values:
        with torch.no_grad():
            leaves = {n: self._leaf(t) for n, t in problem.inputs[0].items()}
            with self._watching(module, "step") as seen:
                outputs = forward(self.spec, module, leaves)
        values = {(output_kind(k), at(k, "step")): t for k, t in outputs.items()}
        return values | {("border", key): t for key, t in seen.items()}


def float_buffers(module: Any) -> list[tuple[str, Tensor]]:
    """A module's floating-point buffers by name: what a forward may leave behind."""
    if not isinstance(module, nn.Module):
        return []
    return [(n, b) for n, b in buffers_of(module).items() if b.is_floating_point()]


def sgd_step(params: Iterable[Tensor]) -> None:
    """p ← p − lr · grad, in place, where there is a gradient; tied ones once."""
    with torch.no_grad():
        for p in {id(p): p for p in params}.values():
            if p.grad is not None:
                p.add_(p.grad, alpha=-LEARNING_RATE)


def _gradient(tensor: Tensor) -> Tensor:
    """The gradient; zero where the reference does not depend on the tensor at all."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.detach().clone()


def _load(module: Any, params: Mapping[str, Tensor]) -> dict[str, nn.Parameter]:
    """Copies the drawn state into a module; returns its parameters by name, tied ones under each
    of theirs."""
    if not isinstance(module, nn.Module):
        return {}
    with torch.no_grad():
        for name, tensor in tensors_of(module).items():
            if name in params:
                tensor.copy_(params[name])
            tensor.grad = None
    return dict(module.named_parameters(remove_duplicate=False))


def ask(spec: Spec, what: str, call: Callable[..., Any], *given: Any) -> Any:
    """Calls one of the spec's callables; what it raises is its author's to mend: one line."""
    try:
        return call(*given)
    except InvalidArgument:
        raise
    except Exception as error:
        here = str(Path(__file__).parent)
        frames = traceback.extract_tb(error.__traceback__)
        own = [
            f for f in frames if not f.filename.startswith((here, str(Path(torch.__file__).parent)))
        ]
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
                given = exact.integers(draw, name, tensor)
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
                tensor = exact.integers(draw, name, tensor)
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
            for name, entry in posed.inputs.items():
                placement.check(name, problem.inputs[0][name], entry, case=case)
            outputs = [n for k, n in values if k in ("output", "loss") and "@" not in n]
            posed.outputs = placement.resolve("outputs", layout.outputs, outputs)
            grads = placement.matched("grads", layout.grads, [*state, *names])
            for (kind, name), value in values.items():
                key, border = (kind, name), kind == "border"
                entry = placement.Replicate() if border else _entry(posed, grads, kind, name)
                placement.check(name, value, entry, case=case)
                about = (entry, own[key].dtype, value.double(), spreads[key], key in unused)
                target = Target(kind, name, *about, own=own[key])
                (problem.borders if border else problem.targets).append(target)
    return posed


def evaluate(spec: Spec, case: Case, *problems: Problem) -> list[Values]:
    """What the reference gives in float64 for problems that may have been altered: one, or those
    of all dp coordinates where they share their gradients."""
    return _Run(spec, case, list(problems), torch.float64)(build_reference(spec, case))


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
    run = _Run(spec, case, problems, torch.float64, watch)
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
    own = _Run(spec, case, problems, dtype, watch)(low)
    sizes = _sizes(spec, case, problems, module) if case.integers else None
    expected: list[Expected] = []
    for i, right in enumerate(values):
        given = problems[i].inputs[0]
        repeats = gain.repeats_of(given, expanded=case.memory == "expanded")
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
            spreads = exact.spreads(spreads, sizes[i], dtype)
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
    return _Run(spec, case, positive, torch.float64)(module)


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
    measured, runs = gain.scale(*known, repeats=repeats)
    scaled = measured * MARGIN.get(dtype, 1.0)
    return replace(found, gain=scaled, runs=runs, elements=value.numel())


# ---- the bundle: how a posed case reaches the ranks (tensors as safetensors, the rest as JSON)


def save(posed: Posed, path: Path, *, own: bool = False) -> None:
    """Writes all tensors of a posed case to one safetensors file (no pickle); with `own` also
    the reference's results in the case's dtype."""
    tensors: dict[str, Tensor] = {}
    listing: list[list[Any]] = []
    for d, problem in enumerate(posed.problems):
        if d == 0:
            tensors |= {f"param/{n}": t for n, t in problem.params.items()}
        for m, inputs in enumerate(problem.inputs):
            tensors |= {f"input/{d}/{m}/{n}": t for n, t in inputs.items()}
        for m, cotangents in enumerate(problem.cotangents):
            tensors |= {f"cotangent/{d}/{m}/{n}": t for n, t in cotangents.items()}
        for i, target in enumerate(problem.targets):
            tensors[f"value/{d}/{i}"] = target.value
            found = target.spread
            tensors[f"sigma/{d}/{i}"] = found.sigma
            if own and target.own is not None:
                tensors[f"own/{d}/{i}"] = target.own
            dtype = str(target.dtype).split(".")[-1]
            counts = [found.samples, found.norm_samples, found.chance]
            counts += [found.gain, found.runs, found.elements]
            listing.append([d, i, target.kind, target.name, dtype, target.unused, *counts])
    unique = {name: t.detach().contiguous().clone() for name, t in tensors.items()}
    names = json.dumps(list(posed.problems[0].inputs[0]))  # their order is the call's
    save_file(unique, path, metadata={"targets": json.dumps(listing), "inputs": names})


def load(
    path: Path, d: int, entries: dict[tuple[str, str], Entry], device: torch.device | str
) -> Problem:
    """Reads the problem of dp coordinate `d`; `entries` maps (kind, name) → placement."""
    problem = Problem(d)
    with safe_open(path, framework="pt", device=str(device)) as bundle:
        keys = bundle.keys()
        for key in keys:
            what, _, rest = key.partition("/")
            if what == "param":
                problem.params[rest] = bundle.get_tensor(key)
            elif what in ("input", "cotangent"):
                own, m, name = rest.split("/", 2)
                passes = problem.inputs if what == "input" else problem.cotangents
                while len(passes) <= int(m):
                    passes.append({})
                if int(own) == d:
                    passes[int(m)][name] = bundle.get_tensor(key)
        order = json.loads(bundle.metadata()["inputs"])
        problem.inputs = [{n: inputs[n] for n in order} for inputs in problem.inputs]
        for own, i, kind, name, dtype, unused, *counts in json.loads(bundle.metadata()["targets"]):
            if own == d:
                value, sigma = (bundle.get_tensor(f"{k}/{d}/{i}") for k in ("value", "sigma"))
                entry = entries[kind, name]
                spread = Spread(sigma, *counts)
                floats = getattr(torch, dtype)
                key = f"own/{d}/{i}"
                low = bundle.get_tensor(key) if key in keys else None
                target = Target(kind, name, entry, floats, value, spread, unused, low)
                problem.targets.append(target)
    return problem
