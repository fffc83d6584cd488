"""The known finding that a failure is, or stands beside: in words, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tpcheck.evidence.known import KnownAs, Likeness


def sentence(known: KnownAs) -> str:
    """`docs/findings/README.md: a fault of transformers >=5.16,<5.25 (5.24.0 is installed), seen at
    tensor_parallel.py:377 in ReplicatedWithGradAllReduce`."""
    fault = f"{known.page}: a fault of {known.package} {known.releases}"
    return {
        Likeness.SEEN: f"{fault} ({known.installed} is installed), seen at {known.at}",
        Likeness.DECLARED: f"{fault}, which the check declares",
        Likeness.OTHER_CASE: f"{known.page} is declared with this diagnosis, and not for this case",
        Likeness.OTHER_DIAGNOSIS: f"{known.page} is declared for this case, and the diagnosis is "
        "another",
    }[known.how]


def in_short(known: KnownAs | None) -> str:
    """`, known finding docs/findings/README.md`, of a failure that is one."""
    if known is None or known.how not in (Likeness.SEEN, Likeness.DECLARED):
        return ""
    return f", known finding {known.page}"


def as_json(known: KnownAs) -> dict[str, Any]:
    return {**asdict(known), "at": known.at or None, "message": sentence(known)}
