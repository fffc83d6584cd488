"""Reports of each verb for the page's tests, and pages taken apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from tpcheck.case import Case
from tpcheck.causes.reruns import RoundingOnly
from tpcheck.causes.where import Subject
from tpcheck.event import Event
from tpcheck.evidence import Raised, Scene, Values
from tpcheck.evidence.judged import Judged
from tpcheck.evidence.known import KnownAs, Likeness
from tpcheck.evidence.pictures import (
    Boundaries,
    Boundary,
    Collectives,
    ErrorMap,
    Fate,
    Panel,
    Pictures,
    Piece,
    Source,
)
from tpcheck.figures.alarms import Unit, summary
from tpcheck.figures.hunted import Finding, Hunted
from tpcheck.figures.hunted import Row as Turns
from tpcheck.figures.kills import Matrix, Row
from tpcheck.figures.thresholds import Threshold
from tpcheck.report import as_json, machine
from tpcheck.verdict import (
    CheckResult,
    Counterexample,
    Diagnosis,
    FindingResult,
    Mismatch,
    Verdict,
)
from tpcheck.vocabulary import Code, End, Kind, Phase, Unjudged

STACK = (
    "Current thread 0x1 (most recent call first):\n"
    '  File "/site-packages/torch/x.py", line 3 in wrapper\n'
    '  File "/home/me/mlp.py", line 41 in forward\n'
)
LAST = "all_reduce(sum) float64[1] over ranks 0,1 in forward at mlp.py:40"
SCENE = Scene(stack=STACK, last=(LAST,))
EVENT = Event(
    "all_reduce", "sum", (0, 1), "float64", (2,), 2, 16, Phase.FORWARD, "mlp.py:40", module="up"
)
PICTURES = Pictures(
    maps=(
        ErrorMap(
            tensor="y",
            kind=Kind.OUTPUT,
            shape=(1, 2, 4),
            row_dim=1,
            column_dim=2,
            pieces=(
                Piece((0,), ((0, 2),), ((0, 1), (2, 3))),
                Piece((1,), ((0, 2),), ((1, 2), (3, 4))),
            ),
            panels=(
                Panel((0, 1), ((0.5, 2.0, float("nan"), float("inf")), (0.0, None, 1.0, 2e9))),
            ),
        ),
    ),
    boundaries=Boundaries(
        rows=(
            Boundary(Phase.FORWARD, "", 0, End.IN, "0", Fate.AGREES, "Replicate()"),
            Boundary(Phase.FORWARD, "up", 0, End.OUT, "0", Fate.DIFFERS, error=float("inf")),
            Boundary(Phase.BACKWARD, "up", 1, End.IN, "0", Fate.SUM, "partial Shard(0)"),
        ),
        first=1,
        left_out=2,
    ),
    collectives=Collectives((EVENT,), {0: (0, 0)}, left_out=1),
    code={"": "MLP of my", "up": "Column of my, forward at mlp.py:38", "down": "Row of my"},
    source=(
        Source("mlp.py", 38, ("def forward(self, x):", "    return <x> & 1"), (38, 39), (39,)),
    ),
)
FOUND = Counterexample(
    id="7f3a91",
    case=Case({"hidden": 4}, mesh={"tp": 2}),
    mismatches=[
        Mismatch("y", Kind.OUTPUT, 0, (0, 1), 1.5, float("nan"), 0.5, 1e-15, Values(1, 2, nan=1)),
        Mismatch("rank", Kind.EXCEPTION, 1, detail=Raised("ValueError", "no", scene=SCENE)),
    ],
    diagnosis=Diagnosis(Code.UNCLASSIFIED, RoundingOnly(Subject(Kind.OUTPUT, "y"), 2.0), "why"),
    engine="gloo",
    first_divergence="up (forward)",
    reproduce="tpcheck replay 7f3a91",
    found_after=3,
    pictures=PICTURES,
    known=KnownAs("x.md", "torch", "==2.*", "2.13", Likeness.SEEN, "a.py:3 in f"),
)
KNOWN = FindingResult("torch", "==2.*", "2.13", "rank-crash", "x.md", True, 2, counterexample=FOUND)
KINDS = {
    "pairs": 30,
    "pairs_possible": 40,
    "not_run": ["a step"],
    "never_drawn": ["memory=sliced"],
    "sizes": {"width": [1, 16]},
}
CHECKS = [
    CheckResult("good", Verdict.PASS, "gloo", 5, 0.5, ["float64"], [2], usage={"float64": 0.3}),
    CheckResult("bad", Verdict.FAIL, "gloo", 4, counterexample=FOUND, address="my.py::bad"),
    CheckResult(
        "slow",
        Verdict.UNKNOWN,
        "gloo",
        reason="the time was up",
        judged={(Kind.OUTPUT, "y"): Judged(4, 2, 1, 1, why={Unjudged.TIE: 2})},
        bytes={"parameters": (16, 8), "gradients": (8, 8), "checkpoint": (4, 8)},
        notes=["a note"],
    ),
    CheckResult("declared", Verdict.PASS, "gloo", 2, findings=[KNOWN]),
]


def verify(*results: CheckResult) -> Any:
    """As `tpcheck verify --json` writes it."""
    whole = machine.json_report(
        results or CHECKS, started="now", seconds=1.0, seed=0, engine="gloo", ranks=4,
        skipped={"absent": "no package"},
    )  # fmt: skip
    data = _written(whole)
    data["checks"][0]["kinds"] = KINDS
    return data


def reports() -> dict[str, Any]:
    """One of each verb."""
    found = as_json.counterexample(FOUND)
    finding = Finding(
        "my.py::bad", "bad", "unclassified", "y", "7f3a91", found["case"], ("s",), 4, True, "page",
        found,
    )  # fmt: skip
    hunted = Hunted([Turns("my.py::bad", "bad", 3, 9, findings=1, left=("a line",))], [finding])
    killed = Row("m", True, ("output",), 3, 0.5, "tp=2", "unclassified", ("rank-crash",))
    lived = Row("l", False, (), 20, 0.5, "", "", ("rank-crash",))
    units = [Unit("good", 2, "float64", 0, [0.5], ["7f3a91"])]
    threshold = Threshold("good", 2, "float64", "scale", 3, 1e-12, float("inf"))
    against = {
        "mutants": 1,
        "cases": 3,
        "troubled": {},
        "correct_candidates": 2,
        "correct_cases": {"float64": 3},
        "rules": {
            "ours": {
                "means": "all",
                "killed": 1,
                "missed": ["l"],
                "correct_called_wrong": [],
                "alarms_on_correct": {"float64": 0},
            }
        },
    }
    data = {
        "verify": verify(),
        "fuzz": hunted.to_dict(),
        "mutants": Matrix([killed, lived]).to_dict() | {"against": against},
        "alarms": summary(units).to_dict() | {"troubled": {"x": "why"}},
        "sensitivity": {"runs": 3, "seed": 0, "thresholds": [threshold.to_dict()], "troubled": {}},
    }
    return {name: _written(one) for name, one in data.items()}


def _written(data: Any) -> Any:
    return json.loads(machine.dumps(data))


@dataclass
class Parsed(HTMLParser):
    """The elements of a page, in order, and the texts outside of its style and script."""

    page: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._inside: str = ""
        self.feed(self.page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, attribute: str) -> list[str]:
        """Every value of an attribute."""
        return [str(own[attribute]) for _, own in self.elements if attribute in own]
