"""No decision is taken by reading a sentence: evidence is typed, and prose comes last.

`report/` writes sentences; whoever reads one to decide something changes verdicts when a word is
changed. What is looked for: `… in reason`, `reason == …`, `str(error).startswith(…)`,
`re.search(…, message)` and their kin, outside of `report/`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

#: A name with one of these in it holds a sentence.
PROSE = ("reason", "message", "sentence", "strerror")
READS = {"startswith", "endswith", "find", "index", "count", "search", "match", "fullmatch"}
#: What reads a text for another purpose than to decide: a word for people in a table of figures.
ALLOWED = {"bench/measure.py"}


def is_prose(node: ast.AST) -> bool:
    """Whether an expression is a sentence: a name that says so, or an error as text."""
    if isinstance(node, ast.JoinedStr):
        return any(_is_error(n) or is_prose(n) for n in ast.walk(node) if n is not node)
    if isinstance(node, ast.Attribute):
        return any(word in node.attr for word in PROSE)
    if isinstance(node, ast.Name):
        return any(word in node.id for word in PROSE)
    if isinstance(node, ast.Subscript):
        key = node.slice
        named = isinstance(key, ast.Constant) and key.value in PROSE
        arguments = isinstance(node.value, ast.Attribute) and node.value.attr == "args"
        return named or (arguments and _is_error(node.value.value)) or is_prose(node.value)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):  # reason.lower(), detail.get("reason")
        asked = any(isinstance(a, ast.Constant) and a.value in PROSE for a in node.args)
        return asked or is_prose(node.func.value)
    if isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
        return any(is_prose(a) or _is_error(a) for a in node.args)
    return is_prose(node.func)  # reason(mismatch)


def _is_error(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("error", "err", "e", "ex", "exc", "exception")


def decisions(tree: ast.AST) -> Iterator[int]:
    """The lines at which a sentence is compared with something, or searched."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            against_none = any(isinstance(s, ast.Constant) and s.value is None for s in sides)
            if not against_none and any(map(is_prose, sides)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            searched = [node.func.value, *node.args]
            if node.func.attr in READS and any(map(is_prose, searched)):
                yield node.lineno


def faults(package: Path) -> list[str]:
    return [
        f"{file.relative_to(package)}:{line}"
        for file in sorted(package.rglob("*.py"))
        if "report" not in file.relative_to(package).parts
        and str(file.relative_to(package)) not in ALLOWED
        for line in decisions(ast.parse(file.read_text()))
    ]


def test_no_sentence_decides() -> None:
    assert faults(ROOT / "tpcheck") == []


@pytest.mark.parametrize(
    "line",
    [
        "if 'took longer' in reason: pass",
        "if 'peer' in str(outcome.detail.get('reason')).lower(): pass",
        "if 'None' in str(detail['reason']): pass",
        "x = next((row for part, row in rows if part in reason), None)",
        "if reason == PEER_FAILED: pass",
        "if str(error).startswith('Cannot distribute'): pass",
        "if re.search('No module', self.message): pass",
        "if 'refused' in error.args[0]: pass",
        "if 'refused' in f'{err}': pass",
        "if 'refused' in str(err): pass",
        "if found.diagnosis.message.endswith('.'): pass",
        "if 'x' in reason(mismatch): pass",
    ],
)
def test_a_decision_by_prose_is_seen(line: str) -> None:
    assert list(decisions(ast.parse(line))) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "if reason is not None: pass",
        "if stuck.why is Impasse.TOO_LONG: pass",
        "text = f'{reason}: {message}'",
        "if message: pass",
        "for message in map(json.loads, lines): pass",
    ],
)
def test_what_decides_by_evidence_is_not(line: str) -> None:
    assert list(decisions(ast.parse(line))) == []
