"""What GitHub shows of a run: annotations of lines, by workflow commands, and a job's summary."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tpcheck.errors import counted
from tpcheck.report.places import place
from tpcheck.report.summary import total
from tpcheck.report.text import page, title
from tpcheck.report.visible import name, one_line, visible
from tpcheck.verdict import CheckResult, Verdict

#: Bytes of a summary, at most. GitHub shows none of a step's that is above 1 MiB.
LARGEST = 1_000_000

_COMMANDS = {Verdict.FAIL: "error", Verdict.UNKNOWN: "warning"}
_COLUMNS = ("verdict", "check", "cases", "tp", "dtypes", "engine", "seconds")


def commands(
    results: Sequence[CheckResult], folder: Path, *, unknown: str | None = None
) -> list[str]:
    """A workflow command per check that does not pass: an error where it FAILs, a warning where it
    is UNKNOWN; one more warning where the whole run is (`unknown`).

    Args:
        folder: of the checkout, to which paths are relative.
    """
    found = [_of(result, folder) for result in results if result.verdict in _COMMANDS]
    return found + ([] if unknown is None else [_command("warning", "UNKNOWN", unknown)])


def _of(result: CheckResult, folder: Path) -> str:
    where = {}
    if (found := place(result, folder)) is not None:
        where = {"file": found[0]} | ({} if found[1] is None else {"line": str(found[1])})
    head = f"{result.verdict.value} {title(result)}"
    return _command(_COMMANDS[result.verdict], head, page(result), **where)


def _command(kind: str, head: str, message: str, **where: str) -> str:
    """`::error file=mlp.py,line=41,title=FAIL mlp::…`, in one line."""
    given = ",".join(f"{key}={_property(v)}" for key, v in (where | {"title": head}).items())
    return f"::{kind} {given}::{_data(visible(message))}"


def _data(text: str) -> str:
    """A command's message: what would end its line is spelled as GitHub's runner reads it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The same of a value in the list before the message, which a comma or a colon would end."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(
    verdict: Verdict,
    results: Sequence[CheckResult],
    *,
    seconds: float,
    unknown: str | None = None,
    skipped: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The run in Markdown: a row per check, then the page of each that does not pass. Pages that
    would make it too long for GitHub are counted, and are in the log."""
    lines = [
        f"## tpcheck: {verdict.value}",
        "",
        total(verdict, results, skipped=len(skipped), seconds=seconds).partition("  ")[2],
        *([] if unknown is None else ["", f"UNKNOWN: {_code(one_line(unknown))}"]),
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
        *map(_row, results),
        *(
            f"| SKIPPED | {_code(name(own))} {_code(one_line(why))} |"
            for own, why in skipped.items()
        ),
    ]
    out, left = "\n".join(lines) + "\n", 0
    for result in results:
        if result.verdict is Verdict.PASS:
            continue
        more = _fenced(page(result))
        if left or len((out + more).encode("utf-8", "replace")) > LARGEST:
            left += 1
        else:
            out += more
    return out + (f"\nIn the log: {counted(left, 'more page')}.\n" if left else "")


def _row(result: CheckResult) -> str:
    known = result.verdict is Verdict.PASS and result.only_known
    cut = "" if result.asked is None else f" of {result.asked}, time was up"
    cells = [
        "KNOWN" if known else result.verdict.value,
        _code(title(result)),
        f"{result.examples}{cut}",
        ", ".join(map(str, result.tp_degrees)),
        ", ".join(result.dtypes),
        result.engine,
        f"{result.seconds:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """A text as it is, in a cell of a table: nothing in it is Markdown or HTML."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def _fenced(text: str) -> str:
    """A text as it is, between fences that are longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"\n{fence}text\n{text}\n{fence}\n"
