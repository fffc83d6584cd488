"""Reports of each verb for the page's tests, and pages taken apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from tpcheck.case import Case
from tpcheck.causes.reruns import RoundingOnly
from tpcheck.causes.where import Subject
from tpcheck.evidence import Raised, Scene, Values
from tpcheck.evidence.judged import Judged
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
from tpcheck.vocabulary import Code, Kind, Unjudged

STACK = (
    "Current thread 0x1 (most recent call first):\n"
    '  File "/site-packages/torch/x.py", line 3 in wrapper\n'
    '  File "/home/me/mlp.py", line 41 in forward\n'
)
SCENE = Scene(stack=STACK, last=("all_reduce(sum) float64[1] over ranks 0,1 at mlp.py:40",))
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
)
KNOWN = FindingResult("torch", "==2.*", "2.13", "rank-crash", "x.md", True, 2, counterexample=FOUND)
CHECKS = [
    CheckResult("good", Verdict.PASS, "gloo", 5, 0.5, ["float64"], [2], usage={"float64": 0.3}),
    CheckResult("bad", Verdict.FAIL, "gloo", 4, counterexample=FOUND, address="my.py::bad"),
    CheckResult(
        "slow",
        Verdict.UNKNOWN,
        "gloo",
        reason="the time was up",
        judged={(Kind.OUTPUT, "y"): Judged(4, 2, 1, 1, why={Unjudged.TIE: 2})},
        bytes={"parameters": (16, 8)},
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
    return _written(whole)


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
