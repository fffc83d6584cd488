"""Findings as an audit, or a rank, reports them: each once, in order, with its sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tpcheck.evidence import PlanFault
from tpcheck.figures.plan import MOST_TELLING, Finding, Source
from tpcheck.report.plan import sentence
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind


def reported(findings: Iterable[Finding], source: Source = Source.PYTHON) -> list[Finding]:
    """Each once, the most telling code first, else in the order found.

    Args:
        source: where the plan came from.
    """
    findings = [replace(finding, source=source) for finding in findings]
    ordered = sorted(dict.fromkeys(findings), key=lambda found: MOST_TELLING.index(found.code))
    return [replace(finding, message=sentence(finding)) for finding in ordered]


def mismatches(findings: Iterable[Finding], rank: int) -> list[Mismatch]:
    """Findings as a rank's evidence of kind `sharding`."""
    return [_mismatch(finding, rank) for finding in reported(findings)]


def _mismatch(finding: Finding, rank: int) -> Mismatch:
    detail = PlanFault(finding.code, finding.message, finding.names)
    return Mismatch(finding.names[0], Kind.SHARDING, rank, detail=detail)
