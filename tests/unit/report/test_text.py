"""The report for people: both values, where, why, and how to see it again."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tpcheck.case import Case
from tpcheck.causes.tensor import Scaled
from tpcheck.causes.where import Subject
from tpcheck.evidence import (
    Absent,
    Entered,
    Misheld,
    PlacedOtherwise,
    Raised,
    Refused,
    ReplicasDiffer,
    Scene,
    Stuck,
    Values,
    WrongShape,
)
from tpcheck.report import replay
from tpcheck.report.folded import COLUMNS, cut, fold
from tpcheck.report.text import describe, failure, headline, line, together
from tpcheck.verdict import CheckResult, Counterexample, Diagnosis, Mismatch, Verdict
from tpcheck.vocabulary import Code, Fault, Impasse, Kind, Phase

WRONG = Mismatch("output", Kind.OUTPUT, 1, (0, 3), 0.8127, 1.6254, 0.8127, 3.1e-15, Values(64, 64))
TWICE = Scaled(Subject(Kind.OUTPUT, "output"), 2.0, (0, 1), world=True)
EXAMPLE = Counterexample(
    id="7f3a91",
    case=Case(dims={"in_features": 4}, mesh={"dp": 2, "tp": 2}, seed=5),
    mismatches=[WRONG],
    diagnosis=Diagnosis(Code.SUMMED_TWICE, TWICE, "every element is world_size × the reference"),
    engine="gloo",
    first_divergence="output (forward)",
    reproduce="tpcheck replay 7f3a91",
)
FAILED = CheckResult("row_linear", Verdict.FAIL, "gloo", 3, counterexample=EXAMPLE)


@pytest.mark.parametrize(
    "words",
    [
        "FAIL", "row_linear", "dp=2", "tp=2", "float64", "gloo",
        "rank 1", "output", "[0, 3]",
        "expected 0.8127 ", "got 1.6254", "off by 0.813", "bound 3.1e-15",
        "64 of 64",
        "summed-twice: every element", "output (forward)", "in_features=4 seed=5",
        "tpcheck replay 7f3a91",
    ],
)  # fmt: skip
def test_a_failure_shows(words: str) -> None:
    assert words in failure(FAILED)


def test_shown_values_are_precise_enough_to_tell_neighbours_apart() -> None:
    near = math.nextafter(0.1, 1)
    text = describe(replace(WRONG, expected=0.1, actual=near), verbose=True)
    expected, actual = (float(text.split(word)[1].split()[0]) for word in ("expected", "got"))
    assert (expected, actual) == (0.1, near)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_shown(value: float) -> None:
    assert f"got {value}" in describe(replace(WRONG, actual=value, error=math.nan))


def test_a_norm_that_is_too_large_shows_its_own_bound() -> None:
    whole = replace(WRONG, error=1e-16, detail=Values(1, 2, norm_error=2.5, norm_bound=1.25))
    text = describe(whole)
    assert "2.5 σ" in text and "1.25 σ" in text


def test_a_wrong_dtype_shows_both_dtypes() -> None:
    detail = Values(1, 2, dtype="float16", expected_dtype="bfloat16")
    text = describe(replace(WRONG, detail=detail))
    assert "float16" in text and "expected bfloat16" in text


def test_a_wrong_shape_shows_both_shapes() -> None:
    detail = WrongShape((4, 3), (2, 3))
    text = describe(Mismatch("up.weight", Kind.PARAM_GRAD, 1, detail=detail))
    assert "rank 1 param_grad up.weight" in text and "[4, 3]" in text and "[2, 3]" in text


def test_an_output_that_is_placed_otherwise_shows_both_placements() -> None:
    detail = PlacedOtherwise("{'tp': Replicate()}", "Shard(0)")
    text = describe(Mismatch("output", Kind.OUTPUT, 1, detail=detail))
    assert text.endswith("output: {'tp': Replicate()}, the layout says Shard(0)")


def test_a_missing_gradient_says_why() -> None:
    assert "None" in describe(Mismatch("up.weight", Kind.PARAM_GRAD, 0, detail=Absent()))


def test_replicas_that_differ_name_their_ranks() -> None:
    detail = ReplicasDiffer(Kind.PARAM, (0, 1), (1,))
    assert "[0, 1]" in describe(Mismatch("norm.bias", Kind.REPLICA, 1, detail=detail))


def test_a_hang_shows_what_each_rank_last_entered() -> None:
    peers: dict[str, tuple[str, ...]] = {"1": (), "2": ("broadcast",)}
    peers["0"] = ("barrier", "all_reduce(sum) float32[4]")
    stuck = Stuck(Impasse.EVERY_RANK_WAITS, scene=Scene(peers=peers))
    lines = describe(Mismatch("hang", Kind.HANG, 0, detail=stuck)).splitlines()
    assert "rank 0 hang: every rank waits for another" in lines[0]
    assert [text.split() for text in lines[1:]] == [
        ["rank", "0", "last", "entered", "all_reduce(sum)", "float32[4]"],
        ["before", "that", "barrier"],
        ["rank", "2", "last", "entered", "broadcast"],
    ]


def test_ranks_in_different_collectives_are_shown_side_by_side_with_their_stacks() -> None:
    scene = Scene(
        peers={"1": ("barrier", "broadcast"), "0": ("barrier", "all_reduce(sum)")},
        stack='File "mine.py", line 3, in forward\n  dist.broadcast(x)\n  ^^^^',
        stacks={"0": 'Thread 1 (most recent call first):\n  File "mine.py", line 9 in forward'},
    )
    entered = Entered(1, "broadcast"), Entered(0, "all_reduce(sum)")
    refused = Refused(*entered, step=2, members=(0, 1), scene=scene)
    text = describe(Mismatch("collective", Kind.COLLECTIVE, 1, detail=refused))
    assert "rank 1 enters broadcast, rank 0 entered all_reduce(sum)" in text
    first, second = text.index("rank 0 last entered"), text.index("rank 1 last entered")
    assert first < text.index("before that  barrier") < second
    mine, theirs = text.index("rank 1 is here:"), text.index("rank 0 is here:")
    assert mine < text.index("line 3") < theirs < text.index("line 9") and "^" not in text


def test_an_exception_shows_type_reason_phase_and_the_end_of_its_stack() -> None:
    stack = "\n".join(f"frame {i}" for i in range(9))
    raised = Raised("KeyError", "'x'", Scene(phase=Phase.FORWARD, stack=stack))
    text = describe(Mismatch("exception", Kind.EXCEPTION, 2, detail=raised))
    assert "rank 2 exception: KeyError: 'x' (in forward)" in text
    assert "frame 8" in text and "frame 2" not in text


def test_a_stack_of_two_long_frames_keeps_its_form() -> None:
    frames = [f'  File "/{"a" * 70}/{name}.py", line 3, in forward\n    x()' for name in "bc"]
    raised = Raised("KeyError", "'x'", Scene(phase=Phase.FORWARD, stack="\n".join(frames)))
    found = [Mismatch("exception", Kind.EXCEPTION, 2, detail=raised)]
    text = failure(replace(FAILED, counterexample=replace(EXAMPLE, mismatches=found)))
    lines = [line for line in text.splitlines() if "File" in line]
    assert [line.partition("File")[0] for line in lines] == [" " * 6] * 2
    assert all(line.endswith("in forward") for line in lines), "no frame is folded"


def test_where_every_rank_is_is_shown_once() -> None:
    stacks = {str(rank): f'File "mine.py", line {rank}, in forward' for rank in range(3)}
    found = []
    for rank in range(3):
        others = {other: stack for other, stack in stacks.items() if other != str(rank)}
        scene = Scene(phase=Phase.FORWARD, stack=stacks[str(rank)], stacks=others)
        raised = Raised("ValueError", f"no {rank}\nat all", scene)
        found.append(Mismatch("exception", Kind.EXCEPTION, rank, detail=raised))
    text = failure(replace(FAILED, counterexample=replace(EXAMPLE, mismatches=found)))
    assert all(text.count(f"rank {rank} is here") == 1 for rank in range(3))
    assert all(f"ValueError: no {rank}\n" in text for rank in range(3))
    assert text.count("at all (in forward)") == 3


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("index", [None, ()])
def test_no_kind_of_evidence_is_too_bare_to_be_shown(kind: Kind, index: tuple[()] | None) -> None:
    numbers = {} if index is None else {"expected": 1.0, "actual": 2.0, "error": 1.0, "bound": 0.1}
    text = describe(Mismatch("y", kind, 3, index, **numbers))
    assert "rank 3" in text and kind in text


def test_only_the_first_mismatches_are_shown_and_the_rest_are_counted_by_kind() -> None:
    others = [replace(WRONG, rank=r) for r in range(4)]
    more = [replace(WRONG, kind=Kind.PARAM_GRAD), replace(WRONG, kind=Kind.INPUT_GRAD)]
    text = failure(replace(FAILED, counterexample=replace(EXAMPLE, mismatches=others + more)))
    assert text.count("expected") == 4 and "and 2 more (input_grad, param_grad)" in text


def test_without_a_corpus_no_command_is_promised() -> None:
    text = failure(replace(FAILED, counterexample=replace(EXAMPLE, reproduce="")))
    assert "replay" not in text and "in_features=4" in text


def test_what_could_not_be_decided_says_why() -> None:
    undecided = CheckResult("row", Verdict.UNKNOWN, "gloo", reason="the time was up")
    assert failure(undecided) == "UNKNOWN  row: the time was up"


def test_a_headline_survives_a_counterexample_without_mismatches() -> None:
    assert headline("row", replace(EXAMPLE, mismatches=[])).startswith("FAIL  row › ?")


def test_a_line_a_check_shows_what_was_covered() -> None:
    result = CheckResult("row", Verdict.PASS, "gloo", 24, 1.26, ["float32", "float64"], [2, 4])
    assert line(result).split() == (
        "PASS row 24 cases tp 2,4 float32,float64 gloo 1.3 s".split()  # noqa: SIM905
    )
    assert len(line(CheckResult("row", Verdict.UNKNOWN, "gloo")).splitlines()) == 1


def test_a_wrong_placement_is_told_in_words() -> None:
    detail = Misheld(Fault.PLACEMENT, placement="A", expected_placement="B", axes="")
    text = describe(Mismatch("up.weight", Kind.SHARDING, 0, detail=detail))
    assert text == "rank 0 sharding up.weight: A, the layout says B"


def test_bytes_that_are_read_and_bytes_that_are_kept_are_two_things() -> None:
    read = Misheld(Fault.READ, storage=80, expected=48)
    text = describe(Mismatch("checkpoint", Kind.SHARDING, 0, detail=read))
    assert text == "rank 0 sharding checkpoint: 80 bytes read, the rank's part is 48"
    kept = Misheld(Fault.STORAGE, storage=80, expected=48)
    text = describe(Mismatch("up.weight", Kind.SHARDING, 0, detail=kept))
    assert text == "rank 0 sharding up.weight: a view that keeps 80 bytes alive, its own are 48"
    kept = Misheld(Fault.STORAGE, storage=80, expected=48, inside="norm")
    text = describe(Mismatch("up.weight", Kind.SHARDING, 0, detail=kept))
    assert text.endswith(
        "up.weight: the storage of norm keeps 80 bytes alive, the whole tensor in it"
    )


def test_the_first_that_can_not_run_stands_for_all() -> None:
    assert together({"a": "raised X"}) == "a: raised X"
    assert together({"a": "raised X", "b": "y"}) == "a: raised X (and 1 more)"


# ---- the width of a page

FRAME = '  File "/a/very/long/path/of/a/file/in/a/folder/of/somebody/else.py", line 41, in forward'
SOURCE = f"    raise ValueError('expected one of another')  {'# and a comment that goes on ' * 3}"
STACK = f"{FRAME}\n{SOURCE}"
LONG = [
    replace(WRONG, index=(10, 11, 12), detail=Values(64, 64, 0.25, 1e-9, 3.0, 2.0)),
    Mismatch("rank", Kind.EXCEPTION, 1, detail=Raised("E", "told " * 40, scene=Scene(stack=STACK))),
    *[replace(WRONG, tensor=f"y{number}") for number in range(5)],
]


def wide(*, verbose: bool) -> str:
    said = replace(EXAMPLE.diagnosis, message="every element " * 20)
    case = Case(dims={f"size_{number}": 1000 + number for number in range(20)})
    command = "tpcheck replay 7f3a91 --corpus " + "folder/" * 20
    found = replace(EXAMPLE, mismatches=LONG, diagnosis=said, case=case, reproduce=command)
    return failure(replace(FAILED, counterexample=found), verbose=verbose)


@pytest.mark.parametrize("verbose", [False, True])
def test_a_page_has_100_columns_but_for_code_and_what_is_pasted(verbose: bool) -> None:
    lines = wide(verbose=verbose).splitlines()
    command = [line for line in lines if line.startswith("  reproduce")]
    assert len(command) == 1 and command[0].endswith("folder/" * 20)
    code = [line for line in lines if line.strip() in STACK]
    assert any(len(line) > COLUMNS for line in code), "a line of code is not folded"
    assert all(len(line) <= COLUMNS for line in lines if line not in command + code)
    assert " ".join(" ".join(lines).split()).count("every element " * 20) == 1


def test_all_that_was_seen_is_shown_where_it_is_asked_for() -> None:
    brief, full = wide(verbose=False), wide(verbose=True)
    assert "and 3 more (output); replay -v shows all" in brief and "more (output)" not in full
    assert "y4" not in brief and "y4" in full
    assert "0.81269999999999998" in full and "expected 0.8127 " in brief
    assert "common scale error" in full and "common scale error" not in brief
    again = replace(FAILED, counterexample=replace(EXAMPLE, mismatches=LONG))
    shown = [replay.text(again, "7f", saved=6, identical=True, verbose=v) for v in (False, True)]
    assert ["-v shows all" in text for text in shown] == [True, False]


def test_what_goes_on_is_indented_and_no_word_is_lost() -> None:
    text = "  " + "word " * 60
    first, *others = fold(text)
    assert first.startswith("  word") and all(line.startswith("      word") for line in others)
    assert " ".join([first, *others]).split() == text.split()
    assert fold("x" * 300) == ["x" * 300] and fold("") == [""]
    assert cut("y" * 100, 0) == "y" * 100 and cut("y" * 100, 1) == "y" * 98 + "…"
