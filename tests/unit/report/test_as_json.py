"""Results as JSON: strict, the contract's keys, and each kind of evidence with all it holds."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.told import KERNELS, MASKS
from tpcheck.case import Case
from tpcheck.causes.several import AllScaled
from tpcheck.evidence import (
    Absent,
    Died,
    Elsewhere,
    Entered,
    Evidence,
    MessagesLost,
    Misheld,
    OverBudget,
    OverSaved,
    PathNotTaken,
    PlacedOtherwise,
    PlanFault,
    Raised,
    Ran,
    Refused,
    ReplicasDiffer,
    Scene,
    Stuck,
    TracesDiffer,
    Uneven,
    Values,
    WrongDtype,
    WrongForm,
    WrongShape,
)
from tpcheck.report import as_json
from tpcheck.verdict import CheckResult, Counterexample, Diagnosis, Mismatch, Verdict
from tpcheck.vocabulary import Code, Fault, Impasse, Kind, Lost, Phase

numbers = st.none() | st.floats()
mismatches = st.builds(
    Mismatch,
    tensor=st.text(max_size=8),
    kind=st.sampled_from(Kind),
    rank=st.integers(0, 63),
    index=st.none() | st.lists(st.integers(0, 99), max_size=4).map(tuple),
    expected=numbers,
    actual=numbers,
    error=numbers,
    bound=numbers,
)


# Each kind of evidence → what its JSON holds, as it always did.
SCENE = Scene(("all_reduce",), "File", Phase.FORWARD, "mlp", True, {"1": ("barrier",)}, {"1": "F"})
SEEN = {
    "last": ["all_reduce"],
    "stack": "File",
    "phase": "forward",
    "module": "mlp",
    "consequence": True,
    "peers": {"1": ["barrier"]},
    "stacks": {"1": "F"},
}
TOLD: list[tuple[Evidence, dict[str, Any]]] = [
    (Values(1, 2, nan=2), {"wrong": 1, "of": 2, "nan": 2}),
    (Absent(), {"reason": "the candidate has not returned this output"}),
    (
        Absent(("a",), ("b",)),
        {
            "reason": "the candidate has not returned this output",
            "returned": ["a"],
            "wanted": ["b"],
        },
    ),
    (
        WrongForm("complex64", "float32"),
        {
            "form": "complex64",
            "expected_form": "float32",
            "reason": "complex64, expected a dense float32 tensor",
        },
    ),
    (WrongShape((1,), (2, 3)), {"shape": [1], "expected_shape": [2, 3]}),
    (PlacedOtherwise("a", "b"), {"placement": "a", "expected_placement": "b"}),
    (
        Elsewhere({"pp": 1}, {"pp": 0}),
        {"elsewhere": "is on the ranks of pp=1; the layout has it on those of pp=0 only"},
    ),
    (
        ReplicasDiffer(Kind.PARAM, (0, 1), (1,)),
        {"of": "param", "ranks": [0, 1], "differ_from_first": [1]},
    ),
    (
        Misheld(Fault.WHOLE, shape=(2,), expected_shape=(1,), axes="dp"),
        {"fault": "whole", "shape": [2], "expected_shape": [1], "axes": "dp"},
    ),
    (
        Misheld(Fault.STORAGE, storage=8, expected=4),
        {"fault": "storage", "storage": 8, "expected": 4},
    ),
    (
        Misheld(Fault.ELSEWHERE, elsewhere=Elsewhere({"pp": 1}, {"pp": 0})),
        {
            "fault": "elsewhere",
            "reason": "y is on the ranks of pp=1; the layout has it on those of pp=0 only",
        },
    ),
    (
        Misheld(Fault.MISSING, built="None"),
        {
            "fault": "missing",
            "reason": "the candidate has no 'y': its build(case, mesh) returned None, not a module",
        },
    ),
    (
        Misheld(Fault.UNEXPECTED),
        {"fault": "unexpected", "reason": "the reference has no parameter 'y'"},
    ),
    (
        Misheld(Fault.NONE_SHARDED, parameters=3),
        {
            "fault": "none",
            "parameters": 3,
            "reason": "no parameter is sharded along tp, and the layout declares none as "
            "replicated",
        },
    ),
    (
        PlanFault(Code.WRONG_PLACEMENT, "why", ("w",)),
        {"fault": "plan", "code": "wrong-placement", "reason": "why", "names": ["w"]},
    ),
    (Raised("KeyError", "'x'", SCENE), {"type": "KeyError", "reason": "'x'", **SEEN}),
    (Died(-9, "log", SCENE), {"reason": "killed by SIGKILL", "log": "log", **SEEN}),
    (Died(-40), {"reason": "killed by SIGRTMIN+6", "log": ""}),
    (Died(-99), {"reason": "killed by signal 99", "log": ""}),
    (Died(None, lost=Lost.CLOSED), {"reason": "closed its socket to the driver", "log": ""}),
    (Died(None, lost=Lost.GARBLED), {"reason": "wrote to its socket to the driver", "log": ""}),
    (Died(3), {"reason": "exit code 3", "log": ""}),
    (Died(None), {"reason": "gone", "log": ""}),
    (
        Stuck(Impasse.PEER_FINISHED, (0,), peer=0, scene=SCENE),
        {
            "why": "peer-finished",
            "absent": [0],
            "reason": "waits for rank 0, which finished without this collective",
            **SEEN,
        },
    ),
    (
        Stuck(Impasse.PEER_ABSENT, (1,), peer=1),
        {
            "why": "peer-absent",
            "absent": [1],
            "reason": "waits for rank 1, which has not come to this collective",
        },
    ),
    (
        Stuck(Impasse.AT_WORK),
        {
            "why": "at-work",
            "absent": [],
            "reason": "waits for no other, and was given up with those that do",
        },
    ),
    (
        Stuck(Impasse.TOO_LONG, (), "barrier", seconds=30.0),
        {"why": "too-long", "absent": [], "reason": "the case took longer than 30 s"},
    ),
    (
        Stuck(Impasse.EVERY_RANK_WAITS),
        {"why": "every-rank-waits", "absent": [], "reason": "every rank waits for another"},
    ),
    (Stuck(Impasse.PEER_FAILED), {"why": "peer-failed", "absent": [], "reason": "a peer failed"}),
    (
        Refused(Entered(1, "a"), Entered(0, "b"), 2, (0, 1), scene=SCENE),
        {"reason": "collective 2 of ranks [0, 1]: rank 1 enters a, rank 0 entered b", **SEEN},
    ),
    (
        Refused(Entered(1, "a"), Entered(0, "b"), 2, (0, 1), uneven=Uneven(0, 1, 6, 3)),
        {
            "reason": "collective 2 of ranks [0, 1]: rank 0 sends 6 elements to rank 1, which "
            "expects 3: rank 1 enters a, rank 0 entered b"
        },
    ),
    (
        Refused(Entered(1, "a"), Entered(0, "b"), 2, (0, 1), message=True),
        {"reason": "message 2 from rank 0 to rank 1: rank 1 enters a, rank 0 entered b"},
    ),
    (
        Refused(circle=(Entered(1, "a"), Entered(0, "b"))),
        {"reason": "rank 1 waits in a for rank 0, which waits in b for rank 1"},
    ),
    (
        TracesDiffer((0, 1), 2, ((0, Ran("a", "mlp", "f.py:3")), (1, None)), {0: ("a",), 1: ()}),
        {
            "group": [0, 1],
            "ranks": {"0": ["a"], "1": []},
            "reason": "collective 2 of the group: rank 0 ran a of mlp at f.py:3, rank 1 ran none",
        },
    ),
    (
        MessagesLost(0, 1, 5, 4),
        {"reason": "rank 0 sent 5 messages to rank 1, which received 4"},
    ),
    (
        OverBudget(Phase.FORWARD, {"all_gather": 3}, 1),
        {"phase": "forward", "ran": {"all_gather": 3}, "passes": 1, "unit": "elements per rank"},
    ),
    (OverSaved(16, 8), {"reason": "16 elements saved for backward, of which 8 would do"}),
    (
        PathNotTaken("all_gather", Phase.FORWARD, 1, 2),
        {
            "witness": "all_gather",
            "phase": "forward",
            "reason": "all_gather ran 1 time in forward, of 2 due",
        },
    ),
    (
        WrongDtype("reduce_scatter", Phase.BACKWARD, "float32", "float64", "f.py:3"),
        {
            "dtype": "float32",
            "expected_dtype": "float64",
            "reason": "reduce_scatter in backward runs in float32, float64 is due at f.py:3",
        },
    ),
    *KERNELS,
    *MASKS,
]


@pytest.mark.parametrize(("evidence", "said"), TOLD, ids=lambda v: type(v).__name__)
def test_each_kind_of_evidence_has_its_json(evidence: Evidence, said: dict[str, Any]) -> None:
    found = as_json.detail(Mismatch("y", Kind.OUTPUT, 0, detail=evidence))
    assert json.loads(json.dumps(found, allow_nan=False)) == said


def test_no_kind_of_evidence_is_left_out() -> None:
    def members(union: Any) -> set[type]:
        return set().union(*map(members, get_args(union))) if get_args(union) else {union}

    assert {type(evidence) for evidence, _ in TOLD} == members(Evidence)


@given(mismatches)
def test_evidence_survives_strict_json_to_the_last_bit(mismatch: Mismatch) -> None:
    text = json.loads(json.dumps(as_json.mismatch(mismatch), allow_nan=False))
    again = as_json.mismatch_from(text)

    assert again.same_as(mismatch)
    for field in ("expected", "actual", "error", "bound"):
        before, after = getattr(mismatch, field), getattr(again, field)
        assert type(before) is type(after)
        assert before == after or (math.isnan(before) and math.isnan(after))
    assert again.index == mismatch.index


def test_non_finite_numbers_are_made_text_at_any_depth() -> None:
    given = {"norm_error": math.inf, "list": [math.nan, {"x": -math.inf}]}
    assert as_json.plain(given) == {"norm_error": "inf", "list": ["nan", {"x": "-inf"}]}
    values = Values(1, 2, norm_error=math.inf, norm_bound=1.0)
    said = as_json.detail(Mismatch("y", Kind.OUTPUT, 0, detail=values))
    assert said == {"wrong": 1, "of": 2, "norm_error": "inf", "norm_bound": 1.0}


def test_a_check_result_holds_the_keys_of_the_contract() -> None:
    example = Counterexample(
        id="7f3a91",
        case=Case(),
        mismatches=[Mismatch("y", Kind.OUTPUT, 1, (0,), 1.0, math.nan, math.nan, 1e-15)],
        diagnosis=Diagnosis(Code.SUMMED_TWICE, AllScaled(math.inf, 2, "tp"), "twice"),
        engine="gloo",
        first_divergence="y (forward)",
        reproduce="tpcheck replay 7f3a91",
    )
    row = as_json.check(CheckResult("row", Verdict.FAIL, "gloo", counterexample=example))

    assert set(row) >= {
        "name", "verdict", "engine", "examples", "seconds", "dtypes", "tp_degrees",
        "counterexample",
    }  # fmt: skip
    assert set(row["counterexample"]) >= {
        "id", "case", "mismatches", "diagnosis", "first_divergence", "reproduce"
    }  # fmt: skip
    assert set(row["counterexample"]["mismatches"][0]) >= {
        "tensor", "kind", "rank", "index", "expected", "actual", "error", "bound"
    }  # fmt: skip
    assert set(row["counterexample"]["diagnosis"]) == {"code", "message", "evidence"}
    json.dumps(row, allow_nan=False)


def test_without_a_counterexample_there_is_null() -> None:
    assert as_json.check(CheckResult("row", Verdict.PASS, "gloo"))["counterexample"] is None
