"""Numbers, values and stacks in the few words that a page has room for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tpcheck.comms import frames
from tpcheck.report.visible import visible

#: Characters of a value without a shape of its own. A detail may quote whole tensors; fewer would
#: cut a message of torch about two shapes.
LONGEST = 4000

#: Fields of a detail that are told in places of their own.
_PLACED = ("reason", "stack", "stacks", "last", "peers", "log", "consequence")

#: Files of torch and tpcheck as another machine has installed them: a page may be made elsewhere.
_INSTALLED = re.compile(r"(site|dist)-packages/(torch|tpcheck)/|/tpcheck/ranks/|^<")


def number(value: Any, digits: int = 6) -> str:
    """`0.660`, `nan`, `–`."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.{digits}g}"


def times(error: Any, bound: Any) -> str:
    """How many times its bound an error is: `3.1e+12 ×`; nothing where that says nothing."""
    try:
        ratio = float(error) / float(bound)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return ""
    return f"{ratio:.2g} ×"


def value(given: Any) -> str:
    """Any value of a report: texts as they are, the rest as JSON."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return visible(text if len(text) <= LONGEST else text[:LONGEST] + " …")


def facts(detail: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a mismatch's detail says, without what is told in a place of its own."""
    named = [(key, given) for key, given in detail.items() if key not in _PLACED]
    return [(key.replace("_", " "), value(given)) for key, given in named if given is not None]


def near(stack: str) -> str:
    """The frames that are the user's, those nearest to the fault first; all of them where none
    is."""
    first = "most recent call first" in stack
    blocks: list[list[str]] = []
    for line in stack.strip().splitlines():
        if not set(line.strip()) - set("^~"):
            continue
        if line.lstrip().startswith("File"):
            blocks.append([])
        if blocks:
            blocks[-1].append(line.strip())
    own = [block for block in blocks if _is_users(_file(block[0]))] or blocks
    if not own:
        return visible(stack.strip())
    return visible("\n".join("\n    ".join(block) for block in (own if first else own[::-1])))


def _is_users(path: str) -> bool:
    return frames.is_users(path) and not _INSTALLED.search(path)


def _file(line: str) -> str:
    parts = line.split('"')
    return parts[1] if len(parts) > 2 else ""


def ranks(mismatches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where each rank that failed was: the collectives that it entered last, and its stack. Each
    rank once."""
    found: dict[str, dict[str, Any]] = {}
    for mismatch in mismatches:
        detail, own = mismatch["detail"], str(mismatch["rank"])
        peers = _texts(detail.get("peers")) | {own: detail.get("last")}
        stacks = _texts(detail.get("stacks")) | {own: detail.get("stack")}
        for rank in {**peers, **stacks}:
            last, stack = peers.get(rank), stacks.get(rank)
            if (last or stack or detail.get("log")) and rank not in found:
                log = detail.get("log") if rank == own else None
                found[rank] = {
                    "rank": rank,
                    "last": [value(one) for one in last] if isinstance(last, list) else [],
                    "near": near(stack) if isinstance(stack, str) else "",
                    "stack": visible(stack) if isinstance(stack, str) else "",
                    "log": value(log) if log else "",
                }
    return [found[rank] for rank in sorted(found, key=lambda name: (len(name), name))]


def _texts(given: Any) -> dict[str, Any]:
    return {str(key): one for key, one in given.items()} if isinstance(given, Mapping) else {}
