"""The script of a kernel: one process, one call and its backward."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from torch import Tensor

from tpcheck.check import Check
from tpcheck.discipline import Kernel
from tpcheck.errors import CaseError
from tpcheck.kernels.registered import EVERY
from tpcheck.oracle.effort import CONFIRM
from tpcheck.oracle.pose import Posed, pose
from tpcheck.protocol.messages import Work
from tpcheck.ranks import remembered
from tpcheck.ranks.opchecked import moved_by_rounding
from tpcheck.ranks.share import Share
from tpcheck.report.script import INTERPRETED
from tpcheck.script import literals, subject
from tpcheck.script.body import Body, expected, function, in_order, listed, tensors
from tpcheck.script.carried import carried
from tpcheck.script.parts import candidate, crash, habits, interpreted, kernel, ops
from tpcheck.script.parts import tensors as compared
from tpcheck.search.corpus import Saved
from tpcheck.tensors import in_place, reserved
from tpcheck.tensors.leaves import Quiet, quiet, takes_gradients
from tpcheck.tensors.ops import lacks_backward, within
from tpcheck.vocabulary import ON_GPUS, Kind

#: Only Triton's interpreter tells these.
_WATCHED = frozenset({Kind.MEMORY, Kind.RACE})
#: What a script shows of a kernel.
SHOWN = frozenset({*_WATCHED, Kind.DISCIPLINE, Kind.CUSTOM_OP, Kind.EXCEPTION, Kind.CRASH}).union(
    kind for kind in Kind if kind.is_tensor
)


def of_kernel(saved: Saved, check: Check, rules: Kernel) -> Body:
    """The script of a check of `kernel_check`.

    Raises:
        CaseError: no script could find the function again.
    """
    if saved.case.world_size > 1:
        raise CaseError(f"case {saved.id}: {saved.check!r} communicates, which no script has yet")
    kinds = {mismatch.kind for mismatch in saved.mismatches}
    called = within(check.candidate(saved.case, None))  # type: ignore[arg-type]
    own = getattr(check.candidate, "fn", called)  # with what `functools.partial` has for it
    found = subject.named(own, check) or subject.of_check(check, ("kernel_check",))
    if found is None:
        raise CaseError(
            f"case {saved.id}: the function of {saved.check!r} has no name in a module, by which a "
            "script could import it: give it one, or make the check by `name = kernel_check(…)`"
        )
    gpu = saved.engine in ON_GPUS
    triton = not gpu and (subject.uses(called, "triton") or bool(kinds & _WATCHED))
    parts: list[ModuleType] = [candidate, reserved, compared, kernel]
    parts += [remembered, habits] * (Kind.DISCIPLINE in kinds) + [ops] * (Kind.CUSTOM_OP in kinds)
    parts += [interpreted] * triton + [crash] * (Kind.CRASH in kinds)
    posed = pose(check.spec, saved.case, CONFIRM)
    parts += [in_place] * bool(rules.changed(posed.inputs))
    return Body(
        candidate=found,
        parts=parts,
        data=_data(posed, called, rules.constants, gpu=gpu),
        show=_show(check, kinds, posed, saved.case.seed if triton else None),
        first=["seen_from_outside()"] * (Kind.CRASH in kinds),
        environment={} if gpu else {"TRITON_INTERPRET": "1"},
        carried=carried(*_INTERPRETER * triton, *_OPCHECK * (Kind.CUSTOM_OP in kinds)),
        notes=[INTERPRETED] if triton else [],
    )


_WATCH, _OPS = "tpcheck.kernels.watch", "tpcheck.kernels.registered"
_INTERPRETER = (
    ("tpcheck.kernels.interpreter", "install"),
    ("tpcheck.kernels.configurations", "chosen"),
    (_WATCH, "watching"),
    (_WATCH, "Stopped"),
)
_OPCHECK = ((_OPS, "Calls"), (_OPS, "failures"))


def _with_options(check: Check, posed: Posed) -> list[str]:
    """`subject`, as the case calls it: with its options, and what it may change as a tensor that is
    not a leaf."""
    names, rules = getattr(check.candidate, "options", ()), check.kernel or Kernel()
    options = {name: posed.case[name] for name in names}
    changed = rules.changed(posed.inputs)
    kept = [f"subject = changing(subject, {changed})"] * bool(changed)
    modes = {Quiet.NO_GRAD: "no_grad", Quiet.INFERENCE: "inference_mode"}
    kept += [
        f"subject = torch.{mode}()(subject)" for q, mode in modes.items() if q is quiet(posed.case)
    ]
    if not options:
        return kept
    call = f"subject = lambda *tensors: function(*tensors, **{options!r})"
    return ["function = subject", call, *kept]


def _data(posed: Posed, called: Any, constants: Collection[str], *, gpu: bool) -> list[str]:
    problem, placed = posed.problems[0], (posed.params, posed.inputs, posed.outputs)
    share = Share(Work(posed.case, "", *placed, {}, posed.named, suspects=""), problem, 0)
    device = "cuda" if gpu else "cpu"
    made = []
    for m, inputs in enumerate(problem.inputs):
        leaves = takes_gradients(posed.case, share.leaves(inputs), constants)
        given = _leaves(leaves, device)
        seeds = {} if lacks_backward(called) else share.seeds(m)
        made += [
            tensors(f"inputs{_nth(m)}", given, "Tensor | str"),
            tensors(
                f"upstream{_nth(m)}", {n: literals.tensor(t, device) for n, t in seeds.items()}
            ),
        ]
    wanted = [expected(target, target.value.numel()) for target in in_order(problem)]
    return [*made, listed("expected() -> list[Expected]", wanted)]


def _nth(m: int) -> str:
    """Behind the names of what belongs to a call: nothing for the first."""
    return f"_{m}" if m else ""


def _leaves(leaves: Mapping[str, Tensor], device: str) -> dict[str, str]:
    """Of each its source; of one that is another's tensor, that one's name."""
    names: dict[int, str] = {}
    made = {}
    for name, leaf in leaves.items():
        source = names.setdefault(id(leaf), name)
        grad = ".requires_grad_()" if leaf.requires_grad else ""
        made[name] = literals.tensor(leaf, device) + grad if source == name else repr(source)
    return made


def _show(check: Check, kinds: Collection[Kind], posed: Posed, configuration: int | None) -> str:
    """
    Args:
        configuration: in which autotuned kernels run, where Triton interprets.
    """
    rules = check.kernel or Kernel()
    each = [
        f"(fresh(inputs{_nth(m)}), upstream{_nth(m)}())"
        for m in range(len(posed.problems[0].inputs))
    ]
    lines = [*_with_options(check, posed), f"passes = [{', '.join(each)}]"]
    last_first = bool(posed.case.seed % 2) and len(each) > 1
    shown = f"calls(subject, passes, expected(){', last_first=True' * last_first})"
    if Kind.DISCIPLINE in kinds:
        shown += f" + habits(subject, inputs, upstream, overwrites={rules.overwrites!r})"
    if Kind.CUSTOM_OP in kinds:
        targets = posed.problems[0].targets
        finite = all(bool(target.value.isfinite().all()) for target in targets)
        compiled = posed.case.seed % EVERY == 0 and finite
        moved = literals.number(moved_by_rounding(targets))
        shown += f" + opchecked(subject, inputs, upstream, compiled={compiled}, moved={moved})"
    if configuration is None:
        return function("show(subject: Any) -> list[str]", [*lines, f"return {shown}"])
    lines += [
        "own = {",
        "    f'{of}{name}@{m}' if m else f'{of}{name}': tensor",
        "    for m, (given, seeds) in enumerate(passes)",
        "    for of, tensors in (('', given), ('d ', seeds))",
        "    for name, tensor in tensors.items()",
        "}",
        f"return interpreted(lambda: {shown}, own, {configuration})",
    ]
    return function("show(subject: Any) -> list[str]", lines)
