"""A spec's cases as it narrows or widens them: dims, dtypes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tpcheck import Case, specs, strategies
from tpcheck.errors import InvalidArgument
from tpcheck.search.drawing import sample
from tpcheck.search.of_spec import IN_VAIN, cases_of
from tpcheck.space import Space
from tpcheck.spec import Spec

SPACE = Space((2, 4), ("float64", "float32", "bfloat16"), 4)


def drawn(spec: Spec, space: Space = SPACE, count: int = 40) -> list[Case]:
    return sample(cases_of(spec, space), count, "narrowed")


def values(cases: list[Case], dim: str) -> set[Any]:
    return {case[dim] for case in cases}


def test_dims_are_in_the_place_of_those_that_are_drawn() -> None:
    dims = {
        "hidden": [8, 96],
        "bias": True,
        "intermediate": strategies.multiples("tp"),
        "seq": st.integers(30, 31),
        "batch": lambda d: d["tp"] + 1,
    }
    cases = drawn(replace(specs.mlp(), dims=dims))
    assert values(cases, "hidden") == {8, 96} and values(cases, "bias") == {True}
    assert {case["intermediate"] % case.tp for case in cases} == {0}
    assert values(cases, "seq") <= {30, 31} and {c["batch"] - c.tp for c in cases} == {1}
    assert values(cases, "activation") == {"gelu", "swiglu"}, "others are as they were"
    odd = {case["intermediate"] % case.tp for case in drawn(specs.mlp())}
    assert len(odd) > 1 and not values(drawn(specs.mlp()), "hidden") & {96}


def test_what_depends_on_a_dim_follows_it_and_cases_that_can_not_be_are_left_out() -> None:
    spec = replace(specs.attention(), dims={"heads": [12]})
    cases = drawn(spec)
    assert values(cases, "heads") == {12} and len(values(cases, "kv_heads")) > 1
    assert spec.requires and {spec.requires(case) for case in cases} == {None}
    pairs = {"_counts": [(8, 2), (16, 4)]}
    both = drawn(replace(specs.attention(), dims=pairs), Space((2,)))
    assert {(c["heads"], c["kv_heads"]) for c in both} == {(8, 2), (16, 4)}
    assert not any(name.startswith("_") for case in both for name in case.dims)


def test_dims_of_which_no_case_can_be_are_given_up_soon() -> None:
    asked = []

    def never(case: Case) -> str:
        asked.append(case)
        return "it can't be"

    assert drawn(replace(specs.mlp(), dims={"bias": True}, requires=never)) == []
    assert len(asked) == IN_VAIN
    seldom = replace(specs.mlp(), dims={"bias": True}, requires=lambda case: case.seed % 3 or None)
    assert len(drawn(seldom)) == 40, "one that can be is enough to go on"


def test_a_run_draws_those_of_its_dtypes_that_it_asks_for() -> None:
    half = replace(specs.mlp(), dtypes=("float32", "bfloat16"))
    assert {case.dtype for case in drawn(half)} == {"float32", "bfloat16"}
    assert {case.dtype for case in drawn(half, Space((2,), ("bfloat16",)))} == {"bfloat16"}
    none = drawn(half, Space((2,), ("float64",)))
    assert {case.dtype for case in none} == {"float32", "bfloat16"}, "as with degrees"


def test_a_dim_that_is_not_drawn_is_told_with_the_near_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"names 'hiden' \(did you mean 'hidden'"):
        drawn(replace(specs.mlp(), dims={"hiden": 4}))


def test_what_comes_with_a_model_is_not_narrowed() -> None:
    spec = replace(specs.mlp(models="llama-3-8b"), dims={"hidden": 8})
    with pytest.raises(InvalidArgument, match="comes with the model: give models= or dims="):
        drawn(spec)
    others = drawn(replace(specs.mlp(models="llama-3-8b"), dims={"seq": 3}))
    assert values(others, "seq") == {3}


def own(space: Any) -> Any:
    """Without strategies.cases."""
    return st.builds(
        lambda n, dtype: Case(dims={"n": n}, dtype=dtype),
        st.integers(1, 3),
        st.sampled_from(["float64", "float16"]),
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dims": {"n": [7]}}, r"n=\d, which is not one of 7"),
        ({"dims": {"m": 1}}, "no dim 'm'"),
        ({"dtypes": ("float32",)}, "dtype=.*, which is not one of float32"),
    ],
)
def test_a_strategy_that_does_not_look_is_told(fields: dict[str, Any], says: str) -> None:
    spec = replace(specs.mlp(), cases=own, **fields)
    with pytest.raises(InvalidArgument, match=says) as caught:
        drawn(spec)
    assert "returns strategies.cases(space, …)" in str(caught.value)


def test_a_list_of_cases_says_it_itself() -> None:
    for fields in ({"dims": {"n": 1}}, {"dtypes": ("float64",)}):
        with pytest.raises(InvalidArgument, match="its cases are a list, which says that"):
            replace(specs.mlp(), cases=[Case()], **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [None, {}, [], (), object()])
def test_what_a_dim_can_not_be_is_refused(how: Any) -> None:
    with pytest.raises(InvalidArgument, match="a value, a list of values, a strategy or a func"):
        replace(specs.mlp(), dims={"hidden": how})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"axes": {"pp": 2}}, "axes={'pp': …}: 2 is not a tuple of counts"),
        ({"axes": {"pp": ("2",)}}, "is not a tuple of counts"),
        ({"axes": ["pp"]}, "give a mapping, as in {'pp': .2,.}"),
        ({"microbatches": 3}, "microbatches: 3 is not a tuple of counts"),
        ({"microbatches": ()}, "microbatches: .. is not a tuple of counts"),
        ({"dims": {"rows": []}}, "the dim 'rows' has no values: give some"),
    ],
)
def test_what_cases_are_drawn_from_is_checked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        sample(strategies.cases(SPACE, **{"dims": {}, **given}), 1, "checked")
