"""Cases as a check has them: in memory formats that its spec takes; of one that saves, at which
degrees, and of sizes that fit both."""

from __future__ import annotations

from dataclasses import replace

from tests import candidates
from tpcheck import Case, Training, specs
from tpcheck.check import Check
from tpcheck.search.drawing import sample
from tpcheck.search.drawn import strategy_of

PLAIN = candidates.check(candidates.Row)
SAVING = Check(
    specs.attention(),
    PLAIN.candidate,
    save=lambda module, folder: None,
    load=lambda module, folder: None,
)


def drawn(check: Check, degree: int, degrees: tuple[int, ...], ranks: int = 4) -> list[Case]:
    return sample(strategy_of(check, degree, degrees, ("float64",), ranks), 60, "drawn")


def test_only_memory_formats_that_the_spec_takes_are_drawn() -> None:
    few = replace(PLAIN, overrides={"memory": ("sliced", "contiguous")})
    assert {case.memory for case in drawn(few, 2, (2,))} == {"sliced", "contiguous"}
    assert len({case.memory for case in drawn(PLAIN, 2, (2,))}) == 5
    saving = replace(SAVING, overrides={"memory": ("offset",)})
    assert {case.memory for case in drawn(saving, 2, (2, 4))} == {"offset"}
    listed = replace(few.spec, cases=[Case(dims={"n": 4}, memory="expanded")])
    strategy = strategy_of(replace(few, spec=listed, overrides={}), 2, (2,), ("float64",), 4)
    assert [case.memory for case in sample(strategy, 1, "listed")] == ["expanded"]


def test_half_of_them_are_saved_at_another_degree() -> None:
    cases = drawn(SAVING, 2, (1, 2, 4))
    assert {case.tp for case in cases} == {2}
    assert {case.saved_at for case in cases} == {0, 1, 4}
    elsewhere = sum(case.saved_at != 0 for case in cases)
    assert 15 <= elsewhere <= 45


def test_a_larger_degree_fits_them_and_the_ranks_that_there_are() -> None:
    cases = [case for case in drawn(SAVING, 2, (2, 4)) if case.saved_at]
    requires = SAVING.spec.requires
    assert cases and requires is not None
    assert all(requires(case.when_saved) is None for case in cases)
    assert {case.when_saved.world_size for case in cases} == {4}
    assert len({(case["heads"], case["kv_heads"]) for case in cases}) > 3


def test_degrees_of_which_neither_divides_the_other_do_not_mix() -> None:
    assert {case.saved_at for case in drawn(SAVING, 3, (2, 3, 4))} == {0}
    assert {case.saved_at for case in drawn(SAVING, 2, (2,))} == {0}


def test_a_list_of_cases_says_it_itself_and_what_does_not_save_has_none() -> None:
    listed = [Case(dims={"n": 4}), Case(dims={"n": 4}, saved_at=4)]
    check = replace(SAVING, spec=replace(SAVING.spec, cases=listed))
    strategy = strategy_of(check, 2, (2, 4), ("float64",), 4)
    assert {case.saved_at for case in sample(strategy, 20, "listed")} <= {0, 4}
    assert {case.saved_at for case in drawn(PLAIN, 2, (2, 4))} == {0}


def test_what_the_spec_says_can_not_be_is_not_drawn() -> None:
    few = lambda case: None if case.tp < 4 else "too many ranks"  # noqa: E731
    check = replace(SAVING, spec=replace(SAVING.spec, requires=few))
    assert {case.saved_at for case in drawn(check, 2, (1, 2, 4))} == {0, 1}

    def raises(case: Case) -> str | None:
        raise ValueError

    check = replace(SAVING, spec=replace(SAVING.spec, requires=raises))
    assert {case.saved_at for case in drawn(check, 2, (1, 2, 4))} == {0, 1, 4}


def test_what_resumes_has_one_dp_coordinate_where_gradients_are_not_shared() -> None:
    spec = replace(SAVING.spec, training=Training(lambda named: None))
    ways = dict.fromkeys(("save", "load"), lambda module, optimizer, folder: None)
    resumed = replace(SAVING, spec=spec, resumes=True, **ways)
    shared = replace(resumed, spec=replace(spec, dp_gradients="mean"))
    assert {case.dp for case in drawn(resumed, 2, (1, 2))} == {1}
    assert {case.dp for case in drawn(shared, 2, (1, 2))} == {1, 2}
