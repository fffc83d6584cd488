"""The user's code that a failure is about, as a page shows it: whoever reads that page may not have
the files."""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping

from tpcheck.check import Check
from tpcheck.comms import frames
from tpcheck.diagnosis.pictures import candidate_of
from tpcheck.evidence import Evidence, Race, Raised, Stray, Unkept, Wrapped
from tpcheck.evidence.pictures import Source
from tpcheck.process.loaded import is_installed

#: Lines of a file that is shown whole. A longer one is read in parts: the functions and classes
#: that are meant, and what stands between them.
WHOLE = 150
#: Lines of all files together, at most: a page of many failures is to stay small.
MOST = 400
#: Bytes of a file that is looked into.
LARGEST = 1 << 20

_LINE = re.compile(r"([^\s/]+\.py):(\d+)")


def sources(
    check: Check,
    told: str,
    entered: Iterable[str],
    called: Iterable[str],
    evidence: Iterable[Evidence | None] = (),
) -> tuple[Source, ...]:
    """The code that a failure is about.

    Args:
        told: what the diagnosis says, with lines as `linear.py:118`.
        entered: texts with the lines at which ranks entered a collective.
        called: texts with the lines at which what a check calls begins.
        evidence: where a rank raised, and what a kernel's programs do, is the diagnosis's, too.
    """
    files = _files(check)
    named = _lines_of([told], files)
    for file, line in _seen(evidence, files):
        named.setdefault(file, set()).add(line)
    meant, shown = _lines_of(entered, files), _lines_of(called, files)
    found: list[Source] = []
    room = MOST
    for file in dict.fromkeys([*named, *meant, *shown, *_home(check)]):
        at_fault = named.get(file, set())
        marks = at_fault | meant.get(file, set())
        for part in _parts(file, marks | shown.get(file, set())):
            if len(part.lines) <= room:
                room -= len(part.lines)
                own = set(range(part.first, part.first + len(part.lines)))
                kept = (tuple(sorted(some & own)) for some in (marks, at_fault))
                found.append(Source(part.file, part.first, part.lines, *kept))
    return tuple(found)


def _seen(
    evidence: Iterable[Evidence | None], files: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """The lines of these files in which a rank raised, the innermost of each, and those of kernels
    whose programs do what they must not."""
    own = set(files.values())
    for one in evidence:
        if isinstance(one, Raised):
            raised = frames.of_stack(str(one.scene.stack or ""))
            yield from [frame for frame in raised if frame[0] in own][:1]
        elif isinstance(one, (Stray, Wrapped, Unkept, Race)):
            homes = [file for file in own if frames.is_within(file, one.kernel, one.line)]
            yield from [(file, one.line) for file in homes if len(homes) == 1]


def _files(check: Check) -> dict[str, str]:
    """Name of a file → its path: of those that were imported and are of no installed package; where
    several have one name nobody knows which is meant."""
    paths: dict[str, set[str]] = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and not is_installed(path):
            paths.setdefault(_name(path), set()).add(path)
    own = {_name(path): path for path in _home(check)}
    return own | {name: next(iter(some)) for name, some in paths.items() if len(some) == 1}


def _home(check: Check) -> list[str]:
    """Where the candidate is written."""
    function = candidate_of(check)
    function = getattr(function, "func", function)  # of a partial
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    path = getattr(module, "__file__", None)
    return [path] if isinstance(path, str) and frames.is_users(path) else []


def _lines_of(texts: Iterable[str], files: Mapping[str, str]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for text in texts:
        for name, line in _LINE.findall(text):
            if name in files:
                found.setdefault(files[name], set()).add(int(line))
    return found


def _parts(file: str, lines: set[int]) -> Iterator[Source]:
    """What is shown of a file."""
    try:
        with tokenize.open(file) as stream:
            text = stream.read(LARGEST + 1)
    except (OSError, SyntaxError, ValueError):
        return
    rows = text.splitlines()
    if len(text) > LARGEST or not rows:
        return
    if len(rows) <= WHOLE:
        yield Source(_name(file), 1, tuple(rows))
        return
    for first, last in _blocks(text, lines):
        yield Source(_name(file), first, tuple(rows[first - 1 : last]))


def _blocks(text: str, lines: set[int]) -> Iterator[tuple[int, int]]:
    """From which line to which: the functions and classes at the top of a file that have one of
    these lines, or only that method where a class is long, and assignments."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield node.lineno, node.end_lineno or node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from _of_definition(node, lines)


def _of_definition(node: ast.stmt, lines: set[int]) -> Iterator[tuple[int, int]]:
    first, last = node.lineno, node.end_lineno or node.lineno
    first = min([first, *(d.lineno for d in getattr(node, "decorator_list", []))])
    if not any(first <= line <= last for line in lines):
        return
    if last - first < WHOLE or not isinstance(node, ast.ClassDef):
        yield first, min(last, first + WHOLE)
        return
    for inner in node.body:
        yield from _of_definition(inner, lines)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
