"""Single pages held to what they are about: verbs, codes, fields, arguments, rooms."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, get_args

import pytest

from tests import ROOT
from tests.documents import commands
from tests.documents.blocks import blocks
from tests.documents.samples import same
from tests.unit.report.test_as_json import TOLD
from tests.unit.test_imports import ORDER
from tpcheck import Case, Check, Spec, __version__, known, placement
from tpcheck.causes.reruns import RoundingOnly
from tpcheck.causes.where import Subject
from tpcheck.configurations import MODELS
from tpcheck.diagnosis.hypotheses.precedence import HYPOTHESES
from tpcheck.evidence import Evidence, Scene
from tpcheck.report import machine
from tpcheck.verdict import (
    CheckResult,
    Counterexample,
    Diagnosis,
    FindingResult,
    Mismatch,
    Verdict,
)
from tpcheck.vocabulary import Code, Fault, Impasse, Kind


def text(page: str) -> str:
    return (ROOT / page).read_text()


def test_the_readme_is_one_screen_for_each_reader() -> None:
    assert len(text("README.md").splitlines()) <= 120


def test_the_readme_names_the_wheel_of_this_version() -> None:
    assert f"dist/tpcheck-{__version__}-py3-none-any.whl" in text("README.md")


def test_the_index_has_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", text("docs/README.md")))
    there = {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert there <= linked
    found = {p.name for p in (ROOT / "docs" / "findings").glob("*.md")} - {"README.md"}
    assert found <= set(re.findall(r"\]\(([^)#]+)\)", text("docs/findings/README.md")))


def test_the_pages_that_code_names_are_there() -> None:
    for folder in ("tpcheck", "fixtures", "properties"):
        for file in (ROOT / folder).rglob("*.py"):
            for page in re.findall(r"docs/[\w/-]+\.md", file.read_text()):
                assert (ROOT / page).exists(), f"{file}: {page}"


def sections(page: str, level: str) -> dict[str, str]:
    """Heading → what stands below it."""
    parts = re.split(rf"^{level} (.+)$", text(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def first_cells(part: str) -> list[str]:
    """The code in the first cells of a section's tables."""
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize("verb", [name for name in commands.verbs() if name != "calibrate"])
def test_the_command_lines_page_has_each_verb_with_its_options_and_defaults(verb: str) -> None:
    section = sections("docs/cli.md", "##")[f"tpcheck {verb}"]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `--")]
    said = {row[1].strip(" `"): row[2].strip(" `") for row in rows}
    options = commands.options_of(verb)
    assert set(said) == set(options)
    for name, option in options.items():
        given = {"None": "", "False": "off"}.get(str(option.default), f"{option.default}")
        assert said[name] == given.removesuffix(".0"), name
    assert f"tpcheck {verb} [OPTIONS]" in section


def test_the_page_of_failures_has_the_sample_of_the_first_check() -> None:
    """Which is held to what is printed: `tests/ranks/test_pages.py`."""
    (sample,) = [block for block in blocks(text("docs/failures.md")) if block.language == "text"]
    shown = [c.shown for block in blocks(text("docs/start.md")) for c in block.commands if c.shown]
    lines = sample.text.splitlines()
    assert lines[0].startswith("FOUND") and same(lines, list(shown[0][: len(lines)]))
    assert not same([*lines[:-1], "  reproduce      tpcheck replay 000000"], list(shown[0]))


def test_the_page_of_orders_names_the_lines_of_the_collectives_that_it_shows() -> None:
    """Its sample is of a deadlock that the page does not run: the lines at least are there."""
    sample = next(b for b in blocks(text("docs/orders.md")) if b.language == "text").text
    source = text("fixtures/compositions/moe.py").splitlines()
    said = re.findall(
        r"(\w+) float64\[[^\]]*\] over ranks \S+ in backward of mlp at\s+moe\.py:(\d+)", sample
    )
    assert len(said) == 2
    for collective, line in said:
        assert f"dist.{collective}" in source[int(line) - 1]


def test_the_page_of_diagnoses_has_each_code_once() -> None:
    given = [name.strip("`") for name in sections("docs/diagnoses.md", "###")]
    assert sorted(given) == sorted(code.value for code in Code)


def test_the_page_of_hypotheses_has_each() -> None:
    ordered = text("docs/hypotheses.md").partition("The most specific ones come first")[2]
    items = ordered.partition("\nIf none fits")[0]
    assert len(re.findall(r"^\d+\. ", items, re.MULTILINE)) == len(HYPOTHESES)


def test_the_page_of_specs_has_each_field_and_placement() -> None:
    fields = first_cells(sections("docs/specs.md", "##")["The fields"])
    assert fields == [field.name for field in dataclasses.fields(Spec)]
    rows = first_cells(sections("docs/specs.md", "##")["Layouts"])
    names = {row.partition("(")[0] for row in rows}
    kinds = ("Replicate", "Shard", "Partial", "Heads", "Blocks", "Only")
    assert names == set(kinds) and all(hasattr(placement, kind) for kind in kinds)


def test_the_page_of_specs_has_each_model_with_its_sizes() -> None:
    section = sections("docs/specs.md", "##")["Sizes of released models"]
    rows = [line.split("|")[1:7] for line in section.splitlines() if line.startswith("| `")]
    said = [[cell.strip(" `") for cell in row] for row in rows]
    assert said == [
        [
            model.name,
            str(model.hidden),
            ", ".join(map(str, model.widths)),
            f"{model.heads}, {model.kv_heads}",
            str(model.head_dim),
            str(model.vocab),
        ]
        for model in MODELS.values()
    ]


def test_the_page_of_checks_has_each_argument() -> None:
    page = text("docs/checks.md")
    for field in dataclasses.fields(Check):
        assert re.search(rf"\b{field.name}\b", page), field.name


def test_the_page_of_known_findings_has_each_argument() -> None:
    page = text("docs/findings/README.md")
    for field in dataclasses.fields(known.KnownFinding):
        assert f"{field.name}=" in page, field.name


def report() -> dict[str, Any]:
    """A report in which every object of the contract occurs."""
    found = Counterexample(
        id="7f3a91",
        case=Case(),
        mismatches=[Mismatch("y", Kind.OUTPUT, 0)],
        diagnosis=Diagnosis(Code.UNCLASSIFIED, RoundingOnly(Subject(Kind.OUTPUT, "y"), 2.0)),
        engine="gloo",
    )
    finding = FindingResult("torch", "==2.*", "2.13", "rank-crash", "x.md", True)
    result = CheckResult("x", Verdict.FAIL, "gloo", counterexample=found, findings=[finding])
    whole = machine.json_report(
        [result], started="", seconds=0.0, seed=0, engine="gloo", ranks=4, skipped={"a": "b"}
    )
    return json.loads(machine.dumps(whole))


def test_the_page_of_reports_has_every_field() -> None:
    page = sections("docs/reports.md", "###")
    whole = report()
    check = whole["checks"][0]
    objects = {
        "The run": whole,
        "A check": check,
        "A counterexample": check["counterexample"],
        "A mismatch": check["counterexample"]["mismatches"][0],
        "A known finding": check["known_findings"][0],
    }
    for title, fields in objects.items():
        table = page[title].split("\n\n#")[0].split("\n\nEvery")[0].split("\n\n`audit`")[0]
        assert sorted(first_cells(table)) == sorted(fields), title
    inner = {**whole["environment"], **whole["skipped"][0], **check["counterexample"]["case"]}
    for field in [*inner, *check["counterexample"]["diagnosis"]]:
        assert f"`{field}`" in text("docs/reports.md"), field
    assert f"| `schema_version` | {machine.SCHEMA_VERSION}" in page["The run"]
    kinds = re.search(r"^\| `kind` \| (.*) \|$", page["A mismatch"], re.MULTILINE)
    assert kinds is not None
    assert sorted(re.findall(r"`(\w+)`", kinds[1])) == sorted(kind.value for kind in Kind)


def test_the_tour_has_the_floor_plan() -> None:
    """Every room in its place, with the side on which it runs."""
    rows = [row.split("|")[1:3] for row in text("docs/tour.md").splitlines() if "| `" in row]
    table = {room: side.strip() for rooms, side in rows for room in re.findall(r"`([^`]+)`", rooms)}
    plan = {name: "ranks" if side == "rank" else side for name, side in ORDER.items()}
    del plan["__main__"]
    assert [(room.removesuffix("/").removesuffix(".py"), side) for room, side in table.items()] == [
        *plan.items()
    ]


def test_the_page_of_reports_has_every_field_of_the_evidence() -> None:
    """Each that occurs, and none that does not exist."""
    section = sections("docs/reports.md", "###")["Detail"]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")]
    said = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert {key for _, detail in TOLD for key in detail} - {"reason"} <= said
    kinds = {kind for union in get_args(Evidence) for kind in (get_args(union) or (union,))}
    fields = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    inside = {field.name for field in dataclasses.fields(Scene)}
    assert said <= fields | inside | {"witness", "unit"}
    faults = re.search(r"^\| a parameter \| `fault` \| (.*) \|$", section, re.MULTILINE)
    assert faults and set(re.findall(r"`(\w+)`", faults[1])) == {fault.value for fault in Fault}
    why = re.search(r"given up: (.*);", section)
    assert why and set(re.findall(r"`([\w-]+)`", why[1])) == {way.value for way in Impasse}
