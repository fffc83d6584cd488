"""What is particular to one script, as source."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from tpcheck.bounds.compare import independent
from tpcheck.bounds.spread import Spread
from tpcheck.protocol.problem import Problem, Target
from tpcheck.script import literals
from tpcheck.script.subject import Subject

_INDENT = " " * 4


@dataclass
class Body:
    """A script but for its head and what all have in common.

    Args:
        candidate: what is imported.
        parts: modules of `parts/` that are pasted.
        data: the case's tensors.
        show: a function `show(subject)` → a line for each thing that is wrong.
        first: what is run before the candidate is imported.
        environment: set before torch is imported.
        carried: modules of tpcheck that come along → their source.
        launcher: a command that may start it, besides Python itself.
        leave: a function that ends the process with an exit code.
        tell: an expression: whether this process says what was found.
        notes: for the head.
    """

    candidate: Subject
    parts: Sequence[ModuleType]
    data: Sequence[str]
    show: str
    first: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)
    launcher: str = ""
    leave: str = "sys.exit"
    tell: str = "True"
    notes: Sequence[str] = ()


def function(signature: str, lines: Iterable[str]) -> str:
    """A definition."""
    return "\n".join([f"def {signature}:", textwrap.indent("\n".join(lines), _INDENT)])


def mapping(made: Mapping[str, str], depth: int = 1) -> str:
    """A dict of sources."""
    if not made:
        return "{}"
    lines = [f"{_INDENT * (depth + 1)}{key!r}: {source}," for key, source in made.items()]
    return "\n".join(["{", *lines, f"{_INDENT * depth}}}"])


def tensors(name: str, made: Mapping[str, str], kind: str = "Tensor") -> str:
    """A function that makes tensors, anew at each call."""
    return f"def {name}() -> dict[str, {kind}]:\n    return {mapping(made)}"


def listed(signature: str, items: Iterable[str]) -> str:
    """A function that returns a list of `items`, each of several lines."""
    return function(signature, ["return [", *items, "]"])


def in_order(problem: Problem) -> list[Target]:
    """What is compared, as it is computed."""
    targets = [target for target in problem.targets if target.kind.is_tensor]
    return sorted(targets, key=lambda target: target.kind.order)


def expected(target: Target, elements: int) -> str:
    """A call of `Expected` (`parts/tensors`).

    Args:
        elements: how many of it one rank holds.
    """
    spread, value = target.spread, target.value if target.exact is None else target.exact
    limit = spread.elementwise_limit(elements)
    gain = spread.gain_limit() if elements == spread.elements else 0.0
    bound = limit * spread.sigma.contiguous()
    may_overflow = bool(((target.value.abs() + bound > spread.largest) & bound.isfinite()).any())
    fields = {
        "value": literals.tensor(value.contiguous().clone()),
        "bound": literals.tensor(bound),
        "norm": literals.number(_norm(spread, elements)),
        "limit": literals.number(limit),
        "gain": literals.number(gain) if gain else "",
        "dtype": str(target.dtype) if target.kind.is_output else "",
        "optional": "True" if target.unused else "",
        "largest": literals.number(spread.largest) if may_overflow else "",
    }
    lines = [f"{_INDENT * 2}{name}={text}," for name, text in fields.items() if text]
    head = f"{_INDENT}Expected(\n{_INDENT * 2}{str(target.kind)!r},\n{_INDENT * 2}{target.name!r},"
    return "\n".join([head, *lines, f"{_INDENT}),"])


def _norm(spread: Spread, elements: int) -> float:
    """By how much rounding may move so many elements together (`bounds/compare`)."""
    sigma = spread.sigma[spread.sigma.isfinite()]
    scale = float(sigma.square().sum().sqrt())
    if scale == 0.0:
        return 0.0
    count = independent(sigma, scale, spread)
    return spread.norm_limit(int(max(1.0, min(count, elements)))) * scale
