"""The script of a kernel: one process, one call and its backward."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import ModuleType

from torch import Tensor

from tpcheck.errors import CaseError
from tpcheck.oracle.effort import CONFIRM
from tpcheck.oracle.pose import Posed, pose
from tpcheck.protocol.messages import Work
from tpcheck.ranks.share import Share
from tpcheck.report.script import INTERPRETED
from tpcheck.script import literals, subject
from tpcheck.script.body import Body, expected, function, in_order, listed, tensors
from tpcheck.script.carried import carried
from tpcheck.script.parts import candidate, crash, habits, interpreted, kernel
from tpcheck.script.parts import tensors as compared
from tpcheck.search.corpus import Saved
from tpcheck.spec import Check, Kernel
from tpcheck.vocabulary import Kind

#: Only Triton's interpreter tells these.
_WATCHED = frozenset({Kind.MEMORY, Kind.RACE})
#: What a script shows of a kernel.
SHOWN = frozenset({*_WATCHED, Kind.DISCIPLINE, Kind.EXCEPTION, Kind.CRASH}).union(
    kind for kind in Kind if kind.is_tensor
)


def of_kernel(saved: Saved, check: Check, rules: Kernel) -> Body:
    """The script of a check of `kernel_check`.

    Raises:
        CaseError: no script could find the function again.
    """
    kinds = {mismatch.kind for mismatch in saved.mismatches}
    called = check.candidate(saved.case, None)  # type: ignore[arg-type]
    found = subject.named(called, check) or subject.of_check(check, ("kernel_check",))
    if found is None:
        raise CaseError(
            f"case {saved.id}: the function of {saved.check!r} has no name in a module, by which a "
            "script could import it: give it one, or make the check by `name = kernel_check(…)`"
        )
    gpu = saved.engine == "nccl"
    triton = not gpu and (subject.uses(called, "triton") or bool(kinds & _WATCHED))
    parts: list[ModuleType] = [candidate, compared, kernel]
    parts += [habits] * (Kind.DISCIPLINE in kinds) + [interpreted] * triton
    parts += [crash] * (Kind.CRASH in kinds)
    return Body(
        candidate=found,
        parts=parts,
        data=_data(pose(check.spec, saved.case, CONFIRM), gpu=gpu),
        show=_show(rules, kinds, saved.case.seed if triton else None),
        first=["seen_from_outside()"] * (Kind.CRASH in kinds),
        environment={} if gpu else {"TRITON_INTERPRET": "1"},
        carried=_interpreter() if triton else {},
        notes=[INTERPRETED] if triton else [],
    )


def _interpreter() -> dict[str, str]:
    watch = "tpcheck.kernels.watch"
    return carried(
        ("tpcheck.kernels.interpreter", "install"),
        ("tpcheck.kernels.configurations", "chosen"),
        (watch, "watching"),
        (watch, "OutOfBounds"),
        (watch, "Overflow"),
    )


def _data(posed: Posed, *, gpu: bool) -> list[str]:
    problem, placed = posed.problems[0], (posed.params, posed.inputs, posed.outputs)
    share = Share(Work(posed.case, "", *placed, {}, posed.named, suspects=""), problem, 0)
    device = "cuda" if gpu else "cpu"
    given = _leaves(share.leaves(problem.inputs[0]), device)
    seeds = {n: literals.tensor(t, device) for n, t in share.seeds(0).items()}
    wanted = [expected(target, target.value.numel()) for target in in_order(problem)]
    return [
        tensors("inputs", given, "Tensor | str"),
        tensors("upstream", seeds),
        listed("expected() -> list[Expected]", wanted),
    ]


def _leaves(leaves: Mapping[str, Tensor], device: str) -> dict[str, str]:
    """Of each its source; of one that is another's tensor, that one's name."""
    names: dict[int, str] = {}
    made = {}
    for name, leaf in leaves.items():
        source = names.setdefault(id(leaf), name)
        grad = ".requires_grad_()" if leaf.requires_grad else ""
        made[name] = literals.tensor(leaf, device) + grad if source == name else repr(source)
    return made


def _show(rules: Kernel, kinds: Collection[Kind], configuration: int | None) -> str:
    """
    Args:
        configuration: in which autotuned kernels run, where Triton interprets.
    """
    lines = ["given, seeds = fresh(inputs), upstream()"]
    shown = "call(subject, given, seeds, expected())"
    if Kind.DISCIPLINE in kinds:
        shown += f" + habits(subject, inputs, upstream, overwrites={rules.overwrites!r})"
    if configuration is None:
        return function("show(subject: Any) -> list[str]", [*lines, f"return {shown}"])
    lines += [
        "own = {**given, **{f'd {name}': seed for name, seed in seeds.items()}}",
        f"return interpreted(lambda: {shown}, own, {configuration})",
    ]
    return function("show(subject: Any) -> list[str]", lines)
