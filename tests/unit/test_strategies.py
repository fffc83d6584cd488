"""Strategies: every drawn case is one that the spec allows and the ranks can hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from tpcheck import placement, specs, strategies
from tpcheck.case import MODES, Case
from tpcheck.errors import InvalidArgument
from tpcheck.layout import resolve
from tpcheck.norm import Norm
from tpcheck.oracle.pose import pose
from tpcheck.oracle.reference import build_reference
from tpcheck.search import drawing
from tpcheck.search.of_spec import cases_of
from tpcheck.search.stream import Stream
from tpcheck.space import Space
from tpcheck.spec import Spec

SPECS = {
    **{name: getattr(specs, name) for name in specs.__all__ if name != "causal_lm"},
    "column_sp": lambda: specs.column_linear(sequence_parallel=True),
    "row_even": lambda: specs.row_linear(even=True),
    "attention_sp": lambda: specs.attention(sequence_parallel=True),
    "block_sp": lambda: specs.block(sequence_parallel=True),
    **{
        f"{name}_models": partial(getattr(specs, name), models="all")
        for name in specs.__all__
        if name != "causal_lm"
    },
}
ALL = Space((2, 4), ("float64", "float32", "bfloat16"), 4)
QUICK = settings(max_examples=15)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"degrees": (0,)}, "tp degree 0"),
        ({"degrees": (-2,)}, "tp degree -2"),
        ({"degrees": (2, 8)}, "tp degree 8 needs 8 ranks and the engine has 4"),
        ({"degrees": ()}, "no degree"),
        ({"dtypes": ()}, "no dtype"),
        ({"dtypes": ("float8",)}, "dtype 'float8' is not one of float64"),
    ],
)
def test_an_impossible_space_is_refused_with_both_sides(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Space(**given)


def test_meshes_come_smallest_first_the_flat_ones_before_those_with_dp() -> None:
    assert Space((4, 1, 2), ranks=8).meshes() == [
        {"tp": 1}, {"tp": 2}, {"tp": 4}, {"dp": 2, "tp": 1}, {"dp": 2, "tp": 2}, {"dp": 2, "tp": 4}
    ]  # fmt: skip
    assert Space((4,), ranks=4).meshes() == [{"tp": 4}]
    assert list(Space((2,), ranks=4).meshes()[-1]) == ["dp", "tp"]  # tp is innermost


def test_further_axes_are_in_every_case_and_tp_is_innermost() -> None:
    space = Space((2, 4), ranks=8)
    assert space.meshes_of({"pp": (2,)}) == [{"pp": 2, "tp": 2}, {"pp": 2, "tp": 4}]
    assert space.meshes_of({"dp": (1, 2), "cp": (2,)}) == [
        {"dp": 1, "cp": 2, "tp": 2}, {"dp": 1, "cp": 2, "tp": 4}, {"dp": 2, "cp": 2, "tp": 2}
    ]  # fmt: skip
    found = find(
        strategies.cases(space, {"stages": lambda d: d["pp"]}, axes={"pp": (2,)}),
        lambda case: case.tp == 4,
        settings=QUICK,
    )
    assert dict(found.mesh) == {"pp": 2, "tp": 4}
    assert dict(found.dims) == {"stages": 2}  # an axis is no dim


def test_a_degree_for_which_the_ranks_do_not_suffice_has_no_case() -> None:
    with pytest.raises(Unsatisfiable):
        find(strategies.cases(Space((4,)), {}, axes={"pp": (2,)}), lambda case: True)


def test_a_spec_says_how_many_microbatches_there_may_be() -> None:
    asked = strategies.cases(ALL, {}, microbatches=(2, 4))
    assert {case.microbatches for case in drawing.sample(asked, 30, "few")} == {2, 4}
    usual = strategies.cases(ALL, {})
    assert {case.microbatches for case in drawing.sample(usual, 60, "few")} == {1, 2, 5}


def test_cases_are_in_the_modes_that_a_spec_has() -> None:
    def modes(spec: Spec) -> Counter[str]:
        return Counter(case.mode for case in Stream(cases_of(spec, ALL), "modes").take(60))

    usual = modes(specs.row_linear())
    assert set(usual) == set(MODES) and max(usual, key=usual.__getitem__) == "train"
    assert set(modes(replace(specs.row_linear(), modes=()))) == {"train"}
    assert set(modes(replace(specs.row_linear(), modes=("eval",)))) == {"train", "eval"}
    for part in ({"norm": Norm()}, {"finalize": lambda module, mesh: None}):
        whole = modes(replace(specs.row_linear(), **part))
        assert set(whole) == set(MODES) - {"frozen", "all-frozen"}


@pytest.mark.parametrize("name", SPECS)
def test_every_drawn_case_can_be(name: str) -> None:
    spec: Spec = SPECS[name]()

    @QUICK
    @given(cases_of(spec, ALL))
    def check(case: Case) -> None:
        assert case.world_size <= 4 and case.tp in ALL.degrees and case.dtype in ALL.dtypes
        assert spec.requires is None or spec.requires(case) is None
        assert Case.from_dict(case.to_dict()) == case
        module = build_reference(spec, case)
        state = dict(module.named_parameters(remove_duplicate=False))
        for tensor, entry in resolve("p", spec.layout(case).params, [*state]).items():
            placement.check(tensor, state[tensor], entry, case=case)

    check()


def test_a_drawn_case_can_be_posed() -> None:
    @settings(QUICK, max_examples=5)
    @given(cases_of(specs.attention(), ALL))
    def check(case: Case) -> None:
        assert pose(specs.attention(), case).problems

    check()


@pytest.mark.parametrize("name", ["row_linear", "attention", "stack"])
def test_every_case_shrinks_to_the_dullest(name: str) -> None:
    case = find(
        cases_of(SPECS[name](), ALL), lambda c: True, settings=settings(QUICK, max_examples=50)
    )
    assert (case.mesh, case.dtype, case.seed) == ({"tp": 2}, "float64", 0)
    assert (case.microbatches, case.step, case.memory, case.magnitude) == (
        1,
        False,
        "contiguous",
        0,
    )
    assert case["batch"] == 1


@pytest.mark.parametrize(
    "wanted",
    [
        lambda c: c.dp == 2,
        lambda c: c.dtype == "bfloat16",
        lambda c: c.microbatches == 2,
        lambda c: c.step,
        lambda c: c.memory == "expanded",
        lambda c: c.magnitude < 0,
        lambda c: c["out_features"] % c.tp != 0,
        lambda c: not c["bias"],
    ],
    ids=["dp", "bfloat16", "microbatches", "step", "expanded", "small", "uneven", "no-bias"],
)
def test_every_kind_of_case_is_drawn(wanted: Callable[[Case], bool]) -> None:
    case = find(
        cases_of(specs.column_linear(), ALL),
        wanted,
        settings=settings(QUICK, max_examples=300),
    )
    assert wanted(case)


@pytest.mark.parametrize("tp", [1, 2, 3, 4, 5, 6, 8, 16])
def test_head_counts_are_all_that_the_degree_allows(tp: int) -> None:
    found: set[tuple[int, int]] = set()

    @settings(QUICK, max_examples=100)
    @given(strategies.head_counts({"tp": tp}))
    def collect(pair: tuple[int, int]) -> None:
        found.add(pair)

    collect()
    for heads, kv in found:
        dims = {"heads": heads, "kv_heads": kv}
        assert specs.attention().requires(Case(dims=dims, mesh={"tp": tp})) is None  # type: ignore[misc]
        placement.Heads(0, kv).indices(kv, tp, tp - 1)
    assert {(tp, tp), (tp, 1)} <= found  # MHA, and MQA: one head on every rank
    assert tp < 4 or any(1 < kv < tp for _, kv in found) or tp == 5  # K/V replicas of a few heads
    assert tp > 4 or any(tp < kv < heads for heads, kv in found)  # GQA without replicas


def test_head_counts_that_do_not_fit_are_refused_by_the_spec() -> None:
    requires = specs.attention().requires
    assert requires is not None
    for heads, kv in ((6, 2), (8, 3), (12, 6)):
        assert requires(Case(dims={"heads": heads, "kv_heads": kv}, mesh={"tp": 4})) is not None


def test_dims_may_depend_on_those_before_and_invalid_ones_are_thrown_away() -> None:
    dims = {
        "width": strategies.sizes(2, 5),
        "double": lambda d: 2 * d["width"],
        "multiple": strategies.multiples("double"),
        "of_tp": strategies.multiples("tp"),
        "constant": "yes",
    }

    @QUICK
    @given(strategies.cases(ALL, dims, valid=lambda d: d["width"] != 2))
    def check(case: Case) -> None:
        assert case["double"] == 2 * case["width"] and case["multiple"] % case["double"] == 0
        assert case["of_tp"] % case.tp == 0 and case["constant"] == "yes" and case["width"] > 2
        assert set(case.dims) == set(dims)

    check()


def listed(*cases: Case) -> Spec:
    return replace(specs.row_linear(), cases=list(cases))


def test_a_list_of_cases_is_drawn_from_as_it_is() -> None:
    cases = [Case(seed=1), Case(seed=2)]

    @QUICK
    @given(cases_of(listed(*cases), ALL))
    def check(case: Case) -> None:
        assert case in cases

    check()


def test_a_listed_case_that_needs_more_ranks_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="8"):
        cases_of(listed(Case(mesh={"tp": 8})), ALL)


@pytest.mark.parametrize("cases", [[], None, lambda space: [Case()], lambda space: None])
def test_what_is_neither_a_strategy_nor_a_list_is_refused(cases: Any) -> None:
    with pytest.raises(InvalidArgument, match="row_linear"):
        cases_of(replace(specs.row_linear(), cases=cases), ALL)


def test_a_strategy_as_cases_is_refused_since_it_cannot_know_the_space() -> None:
    with pytest.raises(InvalidArgument):
        cases_of(replace(specs.row_linear(), cases=st.just(Case())), ALL)


def test_each_case_has_one_of_the_sets_of_dims_that_belong_together() -> None:
    def among(drawn: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"wide": 2 * drawn["tp"], "name": "a"}, {"wide": 3, "name": "b"}][: drawn["tp"] - 1]

    dims = {
        "twice": lambda d: 2 * d["wide"],
        "rows": st.integers(1, 9),
        "wide": st.integers(100, 200),
    }
    cases = drawing.sample(strategies.cases(Space((2, 4)), dims, among=among), 60, "k")
    assert {(case.tp, case["name"], case["wide"], case["twice"]) for case in cases} == {
        (2, "a", 4, 8), (4, "a", 8, 16), (4, "b", 3, 6)
    }  # fmt: skip
    assert len({case["rows"] for case in cases}) > 3


def test_a_degree_for_which_there_is_no_such_set_has_no_case() -> None:
    none = strategies.cases(ALL, {}, among=lambda drawn: [])
    with pytest.raises(Unsatisfiable):
        find(none, lambda case: True)


def test_the_widths_of_models_divided() -> None:
    def drawn(*models: str, divided: int = 64) -> set[int]:
        widths = strategies.model_widths(models, divided=divided)
        cases = st.builds(lambda width: Case(dims={"width": width}), widths)
        return {case["width"] for case in drawing.sample(cases, 40, "k")}

    assert drawn("llama-3-8b", "qwen3-32b") == {64, 224, 80, 128, 400}
    assert drawn("qwen3-30b-a3b", divided=1) == {2048, 4096, 768}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"models": ()}, "give models"),
        ({"models": "falcon-7b", "divided": 128}, "divides 4544, 18176"),
        ({"divided": 0}, "divided=0"),
        ({"models": "llama"}, "no model 'llama'"),
    ],
)
def test_widths_that_no_model_has_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        strategies.model_widths(**given)
