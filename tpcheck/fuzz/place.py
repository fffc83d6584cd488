"""Where a failure shows, as data: what findings are told apart by, besides their diagnosis."""

from __future__ import annotations

from tpcheck.evidence import PathNotTaken, Race, Raised, Stray, Unkept, Wrapped
from tpcheck.search.failures import family
from tpcheck.verdict import CaseResult, Mismatch


def place(result: CaseResult) -> str:
    """The kernel's line; what should have run; the first wrong value in the order of computation;
    or what a rank raised, and in which module."""
    for mismatch in result.causes:
        if isinstance(mismatch.detail, (Stray, Race, Wrapped, Unkept)):
            return f"{mismatch.detail.kernel}:{mismatch.detail.line}"
        if isinstance(mismatch.detail, PathNotTaken):
            return f"{mismatch.detail.name} in {mismatch.detail.phase}"
    values = [mismatch for mismatch in result.causes if mismatch.kind.is_value]
    if values:
        return _tensor(min(values, key=lambda mismatch: mismatch.kind.order))
    return _tensor(result.causes[0]) if result.causes else ""


def signature(result: CaseResult) -> str:
    """What can be said of a failure without a diagnosis: one that has the signature of a finding is
    taken for that finding again."""
    return f"{family(result)} {place(result)}"


def _tensor(mismatch: Mismatch) -> str:
    words = [mismatch.kind.value, mismatch.name.base]
    if isinstance(mismatch.detail, Raised):
        words = [mismatch.detail.type, mismatch.scene.module or ""]
    elif not mismatch.kind.is_value:
        words.append(mismatch.scene.module or "")
    return " ".join(dict.fromkeys(filter(None, words)))
