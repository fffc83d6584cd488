"""Where a failure shows: the kernel's line, the first wrong value, what was raised."""

from __future__ import annotations

from tpcheck import Case
from tpcheck.evidence import PathNotTaken, Race, Raised, Scene, Stray, Values
from tpcheck.fuzz.place import place, signature
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Access, Kind, Phase


def failed(*mismatches: Mismatch) -> CaseResult:
    return CaseResult(Case(), "gloo", list(mismatches))


def value(tensor: str, kind: Kind, rank: int = 0) -> Mismatch:
    return Mismatch(tensor, kind, rank, (0,), 1.0, 2.0, 1.0, 0.1, Values(wrong=1, of=1))


def test_of_values_the_first_to_be_computed() -> None:
    gradient, output = value("weight", Kind.PARAM_GRAD), value("y@1", Kind.OUTPUT)
    assert place(failed(gradient, output)) == "output y"
    assert place(failed(gradient)) == "param_grad weight"


def test_the_rank_and_the_microbatch_do_not_matter() -> None:
    one, other = value("x@1", Kind.INPUT_GRAD), value("x", Kind.INPUT_GRAD, rank=3)
    assert signature(failed(one)) == signature(failed(other))


def test_of_a_kernels_access_its_line() -> None:
    race = Race("_forward", 31, "y", 0, ((0, 0, 0), (1, 0, 0)), Access.STORE)
    stray = Stray("_forward", 12, (0, 0, 0), Access.LOAD, "x", 64, 3)
    raced = failed(value("y", Kind.OUTPUT), Mismatch("y", Kind.RACE, 0, detail=race))
    assert place(raced) == "_forward:31"
    assert signature(raced) == "race _forward:31"
    assert place(failed(Mismatch("x", Kind.MEMORY, 0, detail=stray))) == "_forward:12"


def test_of_a_path_that_was_not_taken_what_should_have_run() -> None:
    missed = (PathNotTaken("_gemm", phase, 0, 2) for phase in (Phase.FORWARD, Phase.BACKWARD))
    places = [place(failed(Mismatch("witness", Kind.WITNESS, 1, detail=m))) for m in missed]
    assert places == ["_gemm in forward", "_gemm in backward"]


def test_of_what_a_rank_raised_its_type_and_the_module() -> None:
    raised = Raised("ValueError", "no 7", Scene(module="mlp.up"))
    other = Raised("ValueError", "no 8", Scene(module="mlp.up"))
    found = [
        failed(Mismatch("rank", Kind.EXCEPTION, 0, detail=detail)) for detail in (raised, other)
    ]
    assert place(found[0]) == "ValueError mlp.up"
    assert signature(found[0]) == signature(found[1])
