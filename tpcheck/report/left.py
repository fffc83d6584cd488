"""State that a check's cases left behind: in words, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpcheck.errors import counted
from tpcheck.evidence.left import LeftBehind
from tpcheck.process.aspects import Left

#: The name of the note.
NAME = "state-left-behind"
#: How many things are told in the line; all are in the JSON.
TOLD = 4


def lines(found: Sequence[LeftBehind]) -> list[str]:
    """`state-left-behind: os.environ (HOME), first by the case …; restored`, and where others ran
    on fresh ranks because of it."""
    effects = [_effect(left) for left in found if left.what is None]
    seen = [left for left in found if left.what is not None]
    if not seen:
        return effects
    names = [_name(left.what) for left in seen if left.what is not None]
    told = ", ".join(names[:TOLD]) + (f" and {len(names) - TOLD} more" if len(names) > TOLD else "")
    lost = not all(left.what.restored for left in seen if left.what is not None)
    after = "what can't be restored is left to fresh processes" if lost else "restored"
    return [f"{NAME}: {told}, first by the case {seen[0].case.describe()}; {after}", *effects]


def _name(left: Left) -> str:
    which = f" ({', '.join(left.which)})" if left.which else ""
    return f"{left.name}{which}{' in the driver' if left.driver else ''}"


def _effect(left: LeftBehind) -> str:
    others = "another" if left.after == 1 else counted(left.after, "other")
    return (
        f"{NAME}: the case {left.case.describe()} failed after {others} on the same ranks and "
        "passes on fresh ones; every case was then run on fresh ranks"
    )


def as_json(left: LeftBehind) -> dict[str, Any]:
    """What, by whom, in which case; `what` is null where only the effect was seen."""
    what = left.what
    return {
        "what": what.name if what else None,
        "which": list(what.which) if what else [],
        "by": "spec" if what and what.driver else "candidate",
        "restored": what.restored if what else False,
        "after": left.after,
        "case": left.case.to_dict(),
    }
