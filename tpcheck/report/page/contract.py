"""The JSON reports of each verb, as the page reads them (docs/reports.md), and which one it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tpcheck.errors import InvalidArgument
from tpcheck.report import files
from tpcheck.report.page.shapes import ANYTHING, NUMBER, Each, Maybe, fitted

#: Bytes of a report that is read. One with the pictures of a hundred failures has some 20 MB.
LARGEST = 200 * 2**20

CASE = {
    "dims": Each(ANYTHING),
    "dtype": str,
    "mesh": Each(int),
    "seed": int,
    "microbatches?": int,
    "step?": bool,
    "memory?": str,
    "magnitude?": int,
    "family?": str,
    "integers?": bool,
    "gradients?": str,
    "mode?": str,
    "saved_at?": int,
}
MISMATCH = {
    "tensor": str,
    "kind": str,
    "rank": int,
    "index?": [int],
    "expected?": NUMBER,
    "actual?": NUMBER,
    "error?": NUMBER,
    "bound?": NUMBER,
    "detail": Each(ANYTHING),
}
ERROR_MAP = {
    "tensor": str,
    "kind": str,
    "shape": [int],
    "row_dim?": int,
    "column_dim?": int,
    "pieces": [{"ranks": [int], "rows": [[int]], "columns": [[int]]}],
    "panels": [{"ranks": [int], "cells": [[Maybe(NUMBER)]]}],
}
BOUNDARIES = {
    "rows": [
        {
            "phase": str,
            "module": str,
            "call": int,
            "side": str,
            "slot": str,
            "fate": str,
            "held?": str,
            "error?": NUMBER,
        }
    ],
    "first?": int,
    "left_out": int,
}
COLLECTIVES = {
    "events": [
        {
            "op": str,
            "group": [int],
            "bytes": int,
            "phase": str,
            "module": str,
            "where": str,
            "said": str,
        }
    ],
    "ranks": Each([int]),
    "left_out": int,
}
COUNTEREXAMPLE = {
    "id": str,
    "case": CASE,
    "mismatches": [MISMATCH],
    "diagnosis": {"code": str, "message": str, "evidence": Each(ANYTHING)},
    "first_divergence?": str,
    "reproduce": str,
    "engine": str,
    "found_after?": int,
    "known_as?": {
        "page": str,
        "package": str,
        "releases": str,
        "installed": str,
        "how": str,
        "at?": str,
        "message": str,
    },
    "error_maps?": [ERROR_MAP],
    "boundaries?": BOUNDARIES,
    "collectives?": COLLECTIVES,
    "code?": Each(str),
    "source?": [{"file": str, "first": int, "lines": [str], "marks": [int], "named?": [int]}],
}
FINDING = {
    "package": str,
    "releases": str,
    "installed?": str,
    "code": str,
    "page": str,
    "state": str,
    "cases_failed": int,
    "cases_passed": int,
    "other_diagnosis?": str,
    "counterexample?": COUNTEREXAMPLE,
}
JUDGED_ROW = {
    "kind": str,
    "tensor": str,
    "elements": int,
    "judged": int,
    "cases": int,
    "judged_in": int,
    "why": Each(int),
}
KINDS = {
    "pairs": int,
    "pairs_possible": int,
    "not_run": [str],
    "never_drawn": [str],
    "sizes": Each([NUMBER]),
}
CHECK = {
    "name": str,
    "verdict": str,
    "engine": str,
    "seconds": NUMBER,
    "address?": str,
    "examples": int,
    "asked?": int,
    "dtypes": [str],
    "tp_degrees": [int],
    "reason?": str,
    "trouble?": bool,
    "notes?": [str],
    "bound_usage?": Each(NUMBER),
    "bytes?": Each({"held": int, "due": int}),
    "judged?": {"elements": int, "judged": int, "incomplete": [JUDGED_ROW]},
    "state_left_behind?": [Each(ANYTHING)],
    "kinds?": KINDS,
    "known_findings?": [FINDING],
    "counterexample?": COUNTEREXAMPLE,
}
VERIFY = {
    "schema_version": int,
    "verdict": str,
    "started?": str,
    "seconds": NUMBER,
    "environment": Each(ANYTHING),
    "seed?": int,
    "reason?": str,
    "checks": [CHECK],
    "skipped?": [{"name": str, "reason": str}],
}
FUZZ = {
    "schema_version": int,
    "verdict": str,
    "reason?": str,
    "seconds": NUMBER,
    "cases": int,
    "cases_of_this_run": int,
    "features": int,
    "chance_of_something_new?": NUMBER,
    "turns_lost": int,
    "checks": [
        {
            "check": str,
            "title": str,
            "turns": int,
            "cases": int,
            "seconds": NUMBER,
            "ran": int,
            "features": int,
            "lone": int,
            "worst": NUMBER,
            "findings": int,
            "undecided?": str,
            "troubled?": str,
            "left?": [str],
        }
    ],
    "findings": [
        {
            "check": str,
            "title": str,
            "code": str,
            "place": str,
            "id": str,
            "found_after": int,
            "shrunk": bool,
            "counterexample": COUNTEREXAMPLE,
        }
    ],
}
RULE = {
    "means": str,
    "killed": int,
    "missed": [str],
    "correct_called_wrong": [str],
    "alarms_on_correct": Each(int),
}
MUTANTS = {
    "mutants": int,
    "killed": int,
    "named": int,
    "misnamed": int,
    "median_examples?": NUMBER,
    "seconds": NUMBER,
    "rows": [
        {
            "mutant": str,
            "killed": bool,
            "kinds": [str],
            "examples": int,
            "seconds": NUMBER,
            "case": str,
            "diagnosis": str,
            "expected": [str],
            "named": bool,
            "trouble?": str,
        }
    ],
    "against?": {
        "mutants": int,
        "correct_candidates": int,
        "correct_cases": Each(int),
        "rules": Each(RULE),
    },
}
LINE = {"cases": int, "alarms": int, "median?": NUMBER, "p99?": NUMBER, "largest?": NUMBER}
ALARMS = {
    "cases": int,
    "alarms": [str],
    "alarm_rate_below": NUMBER,
    "undecided": int,
    "known": int,
    "seconds": NUMBER,
    "by_dtype": Each(LINE),
    "by_degree": Each(LINE),
    "by_check": Each(LINE),
    "troubled?": Each(str),
}
SENSITIVITY = {
    "runs": int,
    "seed": int,
    "thresholds": [
        {"subject": str, "tp": int, "dtype": str, "fault": str, "p99": NUMBER, "median": NUMBER}
    ],
    "troubled?": Each(str),
}
#: What a report is called → a field that no other has, and its shape.
REPORTS = {
    "verify": ("environment", VERIFY),
    "fuzz": ("turns_lost", FUZZ),
    "mutants": ("misnamed", MUTANTS),
    "alarms": ("alarm_rate_below", ALARMS),
    "sensitivity": ("thresholds", SENSITIVITY),
}


def read(path: Path) -> Any:
    """A JSON file.

    Raises:
        InvalidArgument: it can't be read, or is not JSON.
    """
    try:
        return json.loads(files.read(path, LARGEST))
    except OSError as error:
        raise InvalidArgument(f"can't read the report {path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"the report {path} is not JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"can't read the report {path}: {error}") from None


def known(data: Any) -> tuple[str, dict[str, Any]]:
    """Which report it is, and its fields.

    Raises:
        InvalidArgument: it is not a report.
    """
    if not isinstance(data, dict):
        raise InvalidArgument("it is not an object, as the --json of a verb writes it")
    for name, (mark, shape) in REPORTS.items():
        if mark in data:
            return name, fitted(data, shape, "")
    raise InvalidArgument("it is not what the --json of verify, fuzz, mutants or calibrate writes")
