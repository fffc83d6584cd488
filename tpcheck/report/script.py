"""What stands at the head of a script (`tpcheck replay --script`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from tpcheck.report.visible import one_line
from tpcheck.verdict import Mismatch

_WIDTH = 98


def head(
    *,
    check: str,
    identity: str,
    case: str,
    candidate: str,
    diagnosis: Mapping[str, Any],
    mismatches: Iterable[Mismatch],
    versions: Mapping[str, str],
    run: str,
    notes: Iterable[str] = (),
) -> str:
    """Comment lines: what the script shows, of what, and how it is run.

    Args:
        case: in one line.
        candidate: what is imported.
        diagnosis: as saved.
        versions: package → the release with which it was found to be wrong.
        run: the command.
        notes: what else a reader must know.
    """
    code, message = (str(diagnosis.get(key, "")) for key in ("code", "message"))
    found = list(dict.fromkeys(f"{m.kind} {m.tensor}" for m in mismatches))
    about = {
        "candidate": candidate,
        "case": case,
        "wrong": ", ".join(found[:6]) + (", …" if len(found) > 6 else ""),
        "diagnosis": f"{code}: {message}" if code else "",
        "made with": ", ".join(f"{name} {release}" for name, release in versions.items()),
        "run": run,
    }
    lines = [
        f"{'Shows what is wrong with ' + one_line(check)} (tpcheck, case {one_line(identity)}).",
        "",
    ]
    for name, text in about.items():
        if text:
            lines += _wrapped(f"{name:<10} ", one_line(text))
    lines += ["", *_paragraph(_ABOUT)]
    for note in notes:
        lines += ["", *_paragraph(note)]
    return "\n".join(f"# {line}".rstrip() for line in lines)


_ABOUT = (
    "The file needs torch and the candidate, not tpcheck: run it where the candidate can be "
    "imported. The tensors are those of the case. What is expected was computed in float64 by the "
    "case's reference; each element has a bound of its own, which is how far rounding in the "
    "case's dtype may move it. Exit code: 1 the fault shows, 0 it does not, 2 the candidate does "
    "not run."
)

#: Of a kernel that Triton's interpreter runs.
INTERPRETED = (
    "Triton's interpreter is repaired first: by itself it computes bfloat16 wrongly and lets "
    "int32 wrap. What repairs it, and what watches the kernel's loads and stores, is a copy of "
    "tpcheck's own modules, in CARRIED below."
)


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=name,
        subsequent_indent=" " * len(name),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH)
