"""What `tpcheck mutants` prints: the kill matrix, and the rules of others beside ours."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from tpcheck.errors import counted
from tpcheck.figures.kills import Matrix, Row
from tpcheck.figures.rules import Against
from tpcheck.report.text import undecided
from tpcheck.report.visible import one_line
from tpcheck.vocabulary import Rule

MEANS = {
    Rule.OURS: "all evidence",
    Rule.ASSERT_CLOSE: "torch.testing.assert_close, defaults for the dtype, against the reference "
    "in that dtype",
    Rule.TWICE_OWN_ERROR: "largest error at most 2 × the reference's own against float64, and the "
    "rounding of a sum (FlashAttention's rule)",
    Rule.FROBENIUS: "relative Frobenius error at most 8.3 %",
    Rule.FORWARD_ONLY: "our bounds, of outputs alone",
    Rule.SUM_LOSS: "our bounds, under cotangents of ones",
}


def kill_line(row: Row) -> str:
    """One mutant's fate in a line."""
    if row.trouble is not None and not row.killed:
        return f"{'UNKNOWN':<9}{row.mutant:<52} {one_line(row.trouble)}"
    fate = "killed" if row.killed else "SURVIVED"
    name = row.diagnosis + ("" if row.named else f" (expected {' or '.join(row.expected)})")
    kinds = ",".join(row.kinds)
    return f"{fate:<9}{row.mutant:<52}{row.examples:>3} ex {row.seconds:5.1f} s  {kinds}: {name}"


def matrix(found: Matrix) -> str:
    """The sums of a kill matrix, then survivors and misnamed mutants."""
    sums = found.to_dict()
    middle = sums["median_examples"]
    median = "" if middle is None else f"; median {counted(middle, 'example')}"
    lines = [
        f"{sums['killed']} of {sums['mutants']} killed, {sums['named']} with the expected "
        f"diagnosis, {sums['misnamed']} with a wrong one{median}; {sums['seconds']} s"
    ]
    for row in found.ordered():
        if row.trouble is not None and not row.killed:
            lines.append(f"  {kill_line(row)}")
        elif not row.killed or not row.named:
            lines.append(f"  {kill_line(row)}  [{row.case}] {row.message}")
    return "\n".join(lines)


def missed(mutant: str, killed_by: Set[Rule]) -> str:
    """A mutant under all rules: those that let it pass."""
    by = [rule for rule in Rule if rule not in killed_by]
    return f"{mutant:<54}" + (f"missed by: {', '.join(by)}" if by else "killed by all")


def against(found: Against) -> str:
    """One column per rule: mutants killed, and alarms on correct candidates, by dtype."""
    width = 2 + max(map(len, Rule))
    troubled = [undecided(name, reason) for name, reason in found.troubled.items()]

    def row(title: str, cells: list[object]) -> str:
        return f"{title:<34}" + "".join(f"{cell!s:>{width}}" for cell in cells)

    cases = sum(found.correct.values())
    lines = [
        row("", list(Rule)),
        row(
            f"killed, of {counted(len(found.kills), 'mutant')}",
            [found.killed(rule) for rule in Rule],
        ),
        row(
            f"called wrong, of {len(found.candidates)} correct",
            [len(found.called_wrong(rule)) for rule in Rule],
        ),
        row(
            f"alarms on {counted(cases, 'correct case')}",
            [sum(found.alarms[r].values()) for r in Rule],
        ),
    ]
    for dtype, count in sorted(found.correct.items()):
        lines.append(row(f"  of {count} in {dtype}", [found.alarms[rule][dtype] for rule in Rule]))
    means = [f"{rule}: {what}" for rule, what in MEANS.items()]
    return "\n".join([*troubled, *lines, "", *means])


def against_data(found: Against) -> dict[str, Any]:
    """The same, JSON-ready."""
    return {
        "mutants": len(found.kills),
        "cases": found.cases,
        "troubled": found.troubled,
        "correct_candidates": len(found.candidates),
        "correct_cases": dict(found.correct),
        "rules": {
            rule.value: {
                "means": means,
                "killed": found.killed(rule),
                "missed": found.missed(rule),
                "correct_called_wrong": found.called_wrong(rule),
                "alarms_on_correct": dict(found.alarms[rule]),
            }
            for rule, means in MEANS.items()
        },
    }
