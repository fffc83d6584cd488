"""The page of diagnoses: each code has its mechanism, its causes, an example that runs, a fix."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

from tests import ROOT
from tpcheck.vocabulary import Code

PAGE = (ROOT / "docs" / "diagnoses.md").read_text()
PARTS = {
    "when it is given": r"[Gg]iven where\b.*",
    "its causes": r"^Typical causes: .+",
    "the smallest example": r"^Smallest example: (?P<wrong>.+); right: (?P<right>.+) \(`.+`\)\.$",
    "what to do": r"^What to do: .+",
}
EXAMPLE = r"\(`(fixtures/mutants/(\w+)\.py::(\w+)|tests/ranks/[\w/]+\.py)`\)\.$"


def faults(page: str) -> Iterator[str]:
    """What the page does not say of a code, and examples that do not show what they are for."""
    parts = re.split(r"^### `([\w-]+)`$", page.partition("\n## Confusions")[0], flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for code in Code:
        section = sections.get(code, "")
        for name, pattern in PARTS.items():
            if not re.search(pattern, section, re.MULTILINE):
                yield f"{code}: {name}"
        for line in re.findall(r"^Smallest example: .*", section, re.MULTILINE):
            yield from (f"{code}: {fault}" for fault in _example(code, line))


def _example(code: Code, line: str) -> Iterator[str]:
    named = re.search(EXAMPLE, line)
    if named is None or not (ROOT / named[1].partition("::")[0]).exists():
        yield "no example that is there"
    elif named[2]:  # a mutant: that it gets the name is what the kill matrix is for
        mutants = importlib.import_module(f"fixtures.mutants.{named[2]}").MUTANTS
        if code not in {c for m in mutants if m.name == named[3] for c in m.diagnosis}:
            yield f"{named[3]} is not one of it"
    elif (
        code not in (ROOT / named[1]).read_text() and code.name not in (ROOT / named[1]).read_text()
    ):
        yield f"{named[1]} does not know it"


def test_each_code_has_its_mechanism_its_smallest_example_and_its_fix() -> None:
    assert list(faults(PAGE)) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("### `missing-all-reduce`", "### `missing`"),
        ("Smallest example: `all_reduce(y) / group.size()`", "Example: `all_reduce(y) / 2`"),
        ("What to do: sum.", ""),
        ("Typical causes: any exception", "Causes: any exception"),
        ("::row_linear_averaged", "::row_linear_reduced_twice"),
        ("::row_linear_averaged", "::row_linear_averagd"),
        ("test_ops.py", "test_opps.py"),
        ("tests/ranks/kernels/test_ops.py", "tests/ranks/kernels/test_sizes.py"),
    ],
)
def test_the_twin_what_is_missing_is_seen(right: str, wrong: str) -> None:
    assert right in PAGE and list(faults(PAGE.replace(right, wrong))) != []
