"""What share of a check's tensors was judged, and why not all: in words, and as JSON."""

from __future__ import annotations

from typing import Any

from tpcheck.errors import counted
from tpcheck.evidence.judged import Judged, Tensors
from tpcheck.vocabulary import Kind, Unjudged

_WHY = {
    Unjudged.NOT_FINITE: "the reference is NaN or infinite there, though all that it is given is "
    "finite",
    Unjudged.OVERFLOW: "the reference overflows there in the case's dtype",
    Unjudged.MAY_OVERFLOW: "a sum may overflow there in another order, or numbers so large cancel",
    Unjudged.TIE: "rounding alone decides what stands there",
    Unjudged.NOT_COMPARED: "no rank has it to compare",
    Unjudged.SHARED: "data-parallel ranks share it, in place of what the data of each leave",
    Unjudged.EXTRA: "the reference does not return it",
}


def line(tensors: Tensors) -> str | None:
    """`judged 99.2 % of 12400 elements; least of output: 96.1 % (why)`; None where it is all."""
    left = {key: own for key, own in _incomplete(tensors).items() if not own.extra}
    if not left:
        extra = _incomplete(tensors)
        return f"not judged: {each(extra)}" if extra else None
    key = min(left, key=lambda key: _share(left[key]))
    compared = [own for own in tensors.values() if not own.extra]
    whole = Judged(sum(own.elements for own in compared), sum(own.judged for own in compared))
    return (
        f"judged {_percent(whole)} of {counted(whole.elements, 'element')}; least of "
        f"{tensor(*key)}: {_percent(left[key])} ({why(left[key])})"
    )


def as_json(tensors: Tensors) -> dict[str, Any]:
    """How many elements were judged of how many, and each tensor of which not all were."""
    compared = [own for own in tensors.values() if not own.extra]
    return {
        "elements": sum(own.elements for own in compared),
        "judged": sum(own.judged for own in compared),
        "incomplete": [_row(*key, own) for key, own in _incomplete(tensors).items()],
    }


def why(judged: Judged) -> str:
    """Why elements of a tensor were not judged."""
    return "; ".join(_WHY[reason] for reason in sorted(judged.why))


def each(tensors: Tensors) -> str:
    """`output y (why)`, and how many more."""
    key, first = next(iter(tensors.items()))
    more = f", and {len(tensors) - 1} more" if len(tensors) > 1 else ""
    return f"{tensor(*key)} ({why(first)}){more}"


def tensor(kind: Kind, name: str) -> str:
    """`param_grad up.weight`; `output` for the output of that name."""
    return str(kind) if kind == name else f"{kind} {name}"


def _incomplete(tensors: Tensors) -> Tensors:
    return {key: own for key, own in tensors.items() if not own.complete}


def _row(kind: Kind, name: str, own: Judged) -> dict[str, Any]:
    return {
        "kind": kind.value,
        "tensor": name,
        "elements": own.elements,
        "judged": own.judged,
        "cases": own.cases,
        "judged_in": own.judged_in,
        "why": {reason.value: own.why[reason] for reason in sorted(own.why)},
    }


def _share(own: Judged) -> float:
    return own.judged / own.elements if own.elements else 1.0


def _percent(own: Judged) -> str:
    """Rounded down: what is not all does not read as 100 %."""
    return f"{int(1000 * _share(own)) / 10:g} %"
