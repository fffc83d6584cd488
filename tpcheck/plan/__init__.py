"""The auditor of plans: what a plan matched, what it skipped, what is really sharded."""

from tpcheck.figures.plan import Audit, EntryRow, Finding, ParameterRow
from tpcheck.plan.audit import audit
from tpcheck.plan.plan import Plan

__all__ = ["Audit", "EntryRow", "Finding", "ParameterRow", "Plan", "audit"]
