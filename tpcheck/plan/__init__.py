"""The auditor of plans: what a plan matched, what it skipped, what is really sharded."""

from tpcheck.plan.audit import audit
from tpcheck.plan.findings import Audit, Entry, Finding, Parameter
from tpcheck.plan.plan import Plan

__all__ = ["Audit", "Entry", "Finding", "Parameter", "Plan", "audit"]
