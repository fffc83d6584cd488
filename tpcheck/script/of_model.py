"""The script of a model: several ranks, by torchrun or by itself."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tpcheck import placement
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import CaseError
from tpcheck.oracle.effort import CONFIRM
from tpcheck.oracle.placed import terms_over
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import Entry, Replicate, by_axis, summed
from tpcheck.protocol.conventions import LEARNING_RATE
from tpcheck.protocol.problem import Problem, Target
from tpcheck.script import literals, subject
from tpcheck.script.body import Body, expected, function, in_order, mapping
from tpcheck.script.carried import PACKAGE, carried
from tpcheck.script.parts import candidate, launch, model
from tpcheck.script.parts import tensors as compared
from tpcheck.script.subject import Subject
from tpcheck.search.corpus import Saved
from tpcheck.tensors import reserved, strides
from tpcheck.vocabulary import ON_GPUS, Kind

#: What a script shows of a model.
SHOWN = frozenset(kind for kind in Kind if kind.is_tensor) | {Kind.EXCEPTION, Kind.REPLICA}

_INDENT = " " * 4


def of_model(saved: Saved, check: Check) -> Body:
    """The script of a check of a model.

    Raises:
        CaseError: no script could find its functions again, or it needs what a script has not.
    """
    what = _beyond(saved, check)
    if what is not None:
        raise _no_script(saved, what)
    found = subject.named(check.candidate, check) or subject.of_check(check, ("Check",))
    if found is None:
        raise CaseError(
            f"case {saved.id}: the candidate of {saved.check!r} has no name in a module, by which "
            "a script could import it: give it one, or make the check by `name = Check(…)`"
        )
    own = {"load": check.load, "forward": check.spec.forward, "finalize": check.spec.finalize}
    functions = {name: _named(saved, check, name, value) for name, value in own.items() if value}
    posed = pose(check.spec, saved.case, CONFIRM)
    if posed.problems[0].masks:
        raise _no_script(saved, "random masks")
    if any(terms_over(entry, saved.case) for entry in posed.inputs.values()):
        raise _no_script(saved, "inputs of which ranks hold terms")
    return Body(
        candidate=found,
        parts=[candidate, reserved, compared, launch, model],
        data=[*_data(posed), _formats(posed)],
        show=_show(saved.case, functions),
        first=[f"ranks({saved.case.world_size})"],
        carried=carried(*((f.module, f.path) for f in functions.values() if _ours(f))),
        launcher=f"torchrun --nproc-per-node {saved.case.world_size}",
        leave="leave",
        tell="dist.get_rank() == 0",
    )


def _no_script(saved: Saved, what: str) -> CaseError:
    return CaseError(f"case {saved.id}: {saved.check!r} needs {what}, which no script has yet")


def _beyond(saved: Saved, check: Check) -> str | None:
    """What the case needs that no script has."""
    if check.save is not None:
        return "a checkpoint that it saves"
    if check.schedule is not None:
        return "a schedule of its own"
    if check.context is not None or check.forward_context is not None:
        return "a context of its own"
    if check.spec.constants:
        return "inputs that take no gradient"
    if check.spec.training is not None:
        return "steps of an optimizer"
    if check.spec.norm is not None:
        return "the norm of its gradients"
    if saved.case.mode != "train":
        return f"the mode {saved.case.mode!r}"
    return "GPUs" if saved.engine in ON_GPUS else None


def _named(saved: Saved, check: Check, name: str, value: Any) -> Subject:
    found = subject.named(value, check)
    if found is None:
        raise CaseError(
            f"case {saved.id}: {name} of {saved.check!r} has no name in a module, by which a "
            "script could import it"
        )
    return found


def _ours(found: Subject) -> bool:
    return found.module.partition(".")[0] == PACKAGE


# ---- the case's tensors


def _data(posed: Posed) -> list[str]:
    case, problems = posed.case, posed.problems
    first = problems[0]
    own = frozenset[str]() if case.integers else posed.computed  # the candidate's own affair
    given = {name: tensor for name, tensor in first.params.items() if name not in own}
    params = {name: literals.tensor(tensor) for name, tensor in given.items()}
    places = {
        "params": _places(posed.params, given, case),
        "inputs": _places(posed.inputs, first.inputs[0], case),
        "outputs": _places(posed.outputs, _outputs(first), case),
    }
    wanted = in_order(posed.problems[0])
    held = {(str(t.kind), t.name): _place(summed(t.entry), t.value, case) for t in wanted}
    sums = {(str(t.kind), t.name): s for t in wanted if (s := _sums(t.entry, case))}
    fields = [f"    {name}={value!r}," for name, value in case.to_dict().items()]
    placed = [f"    {name}={mapping(own)}," for name, own in places.items()]
    placed += [f"    compared={_keyed(held)},", f"    sums={_keyed(sums)},"]
    placed += [f"    replicas={_keyed(_replicas(posed))},"]
    return [
        function("case() -> Case", ["return Case(", *fields, ")"]),
        function("placed() -> Placed", ["return Placed(", *placed, ")"]),
        f"def parameters() -> dict[str, Tensor]:\n    return {mapping(params)}",
        _of_passes("inputs", problems, lambda problem: problem.inputs),
        _of_passes("upstream", problems, lambda problem: problem.cotangents),
        _expected(problems, case),
    ]


def _outputs(problem: Problem) -> dict[str, Tensor]:
    """Those that take an upstream gradient."""
    return dict(problem.cotangents[0]) if problem.cotangents else {}


def _of_passes(
    name: str, problems: list[Problem], of: Callable[[Problem], list[dict[str, Tensor]]]
) -> str:
    """A function of the dp coordinate and the microbatch."""
    lines = [f"def {name}(d: int, m: int) -> dict[str, Tensor]:"]
    for problem in problems:
        for m, tensors in enumerate(of(problem)):
            made = mapping({n: literals.tensor(t) for n, t in tensors.items()}, 2)
            lines += [f"    if (d, m) == ({problem.d}, {m}):", f"        return {made}"]
    return "\n".join([*lines, "    return {}"])


def _expected(problems: list[Problem], case: Case) -> str:
    lines = ["def expected(d: int) -> list[Expected]:"]
    for problem in problems:
        each = [expected(target, _elements(target, case)) for target in in_order(problem)]
        own = textwrap.indent("\n".join(["return [", *each, "]"]), _INDENT * 2)
        lines += [f"    if d == {problem.d}:", own]
    return "\n".join([*lines, "    return []"])


def _elements(target: Target, case: Case) -> int:
    """How many the first rank that has any holds."""
    entry = summed(target.entry)
    ranks = [r for r in range(case.world_size) if placement.holds(entry, case=case, rank=r)]
    return int(placement.take(target.value, entry, case=case, rank=ranks[0]).numel())


# ---- where they are


def _places(
    entries: Mapping[str, Entry], tensors: Mapping[str, Tensor], case: Case
) -> dict[str, str]:
    return {name: _place(entries.get(name, Replicate()), t, case) for name, t in tensors.items()}


def _place(entry: Entry, full: Tensor, case: Case) -> str:
    """A `Place` (`parts/model`) as source."""
    each = []
    for rank in range(case.world_size):
        if not placement.holds(entry, case=case, rank=rank):
            each.append("None")
            continue
        each.append(f"[{', '.join(_cuts(entry, full, case, rank))}]")
    return f"[{', '.join(each)}]"


def _cuts(entry: Entry, full: Tensor, case: Case, rank: int) -> list[str]:
    """(dim, indices) of each axis that cuts, in the order in which they are cut."""
    coordinates, found, shape = case.coordinates(rank), [], list(full.shape)
    for axis, own in by_axis(entry).items():
        degree = case.mesh.get(axis, 1)
        if not isinstance(own, placement.Sharded) or degree == 1:
            continue
        dim = own.dim % full.ndim
        indices = own.indices(shape[dim], degree, coordinates[axis])
        shape[dim] = len(indices)
        found.append(f"({dim}, {_indices(indices)})")
    return found


def _indices(indices: list[int]) -> str:
    whole = bool(indices) and indices == list(range(indices[0], indices[-1] + 1))
    return f"range({indices[0]}, {indices[-1] + 1})" if whole else repr(indices)


def _sums(entry: Entry, case: Case) -> str:
    axes = terms_over(entry, case)
    return repr(axes) if axes else ""


def _replicas(posed: Posed) -> dict[tuple[str, str], str]:
    """The groups of ranks that hold the same elements (`runner/judge`)."""
    found = {}
    for target in in_order(posed.problems[0]):
        shared = posed.shared and target.kind in (Kind.PARAM, Kind.PARAM_GRAD)
        over = list(posed.case.mesh) if shared else None
        entry, shape = summed(target.entry), tuple(target.value.shape)
        if groups := placement.replicas(entry, shape, case=posed.case, over=over):
            found[str(target.kind), target.name] = repr(groups)
    return found


def _keyed(made: Mapping[tuple[str, str], str]) -> str:
    lines = [f"{_INDENT * 2}{key!r}: {source}," for key, source in made.items()]
    return "\n".join(["{", *lines, _INDENT + "}"]) if lines else "{}"


# ---- memory, and what is run


def _formats(posed: Posed) -> str:
    """`laid_out`, and what it needs."""
    names = [*posed.inputs, *posed.outputs]
    formats = {name: strides.format_of(posed.case, name) for name in names}
    own = {name: held for name, held in formats.items() if held != "contiguous"}
    lines = [f"return lay_out(tensor, {own!r}.get(name, 'contiguous'))"]
    if not own:
        lines = ["return tensor.clone(memory_format=torch.contiguous_format)"]
    made = function("laid_out(tensor: Tensor, name: str) -> Tensor", lines)
    return f"{inspect.getsource(strides.lay_out)}\n\n{made}" if own else made


def _show(case: Case, functions: Mapping[str, Subject]) -> str:
    given = ", ".join(f"{n}=candidate({f.arguments})" for n, f in functions.items())
    lines = [
        f"rank = Rank(case(), placed(), Functions({given}), laid_out)",
        "module = rank.build(subject, parameters())",
        "d = rank.case.coordinates(rank.rank).get('dp', 0)",
        "for m in range(rank.case.microbatches):",
        "    rank.run(module, inputs(d, m), upstream(d, m), m)",
        f"rank.finish(module, inputs(d, 0), rate={LEARNING_RATE!r})",
        "return rank.faults(expected(d))",
    ]
    return function("show(subject: Any) -> list[str]", lines)
