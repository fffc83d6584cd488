"""Cases: lossless as JSON, immutable, named by their content, refused in one line when wrong."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpcheck.case import DTYPES, FAMILIES, MEMORY_FORMATS, Case
from tpcheck.errors import CaseError

names = st.text(min_size=1, max_size=8)
values = st.one_of(
    st.integers(1 - 2**63, 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
meshes = st.permutations(["dp", "tp", "ep"]).flatmap(
    lambda axes: st.fixed_dictionaries({axis: st.integers(1, 4) for axis in axes})
)
cases = st.builds(
    Case,
    dims=st.dictionaries(names, values, max_size=5),
    dtype=st.sampled_from(DTYPES),
    mesh=meshes,
    seed=st.integers(0, 2**64 - 1),
    microbatches=st.integers(1, 3),
    step=st.booleans(),
    memory=st.sampled_from(MEMORY_FORMATS),
    magnitude=st.integers(-8, 8),
    family=st.sampled_from(FAMILIES),
    saved_at=st.integers(0, 4),
)
BASE = Case(dims={"n": 4, "bias": True}, mesh={"dp": 1, "tp": 2})
OTHERS = {
    "dims": {"n": 5, "bias": True},
    "dtype": "float32",
    "mesh": {"dp": 2, "tp": 2},
    "seed": 1,
    "microbatches": 2,
    "step": True,
    "memory": "offset",
    "magnitude": 1,
    "family": "equal",
    "saved_at": 4,
}


@settings(max_examples=60)
@given(cases)
def test_json_there_and_back_loses_nothing(case: Case) -> None:
    again = Case.from_dict(json.loads(json.dumps(case.to_dict())))

    assert again == case
    assert again.canonical() == case.canonical()
    assert list(again.mesh) == list(case.mesh)
    assert {k: type(v) for k, v in again.dims.items()} == {k: type(v) for k, v in case.dims.items()}


@settings(max_examples=30)
@given(cases)
def test_pickling_loses_nothing(case: Case) -> None:
    assert pickle.loads(pickle.dumps(case)).canonical() == case.canonical()


@settings(max_examples=100)
@given(st.lists(cases, min_size=2, max_size=2))
def test_identity_follows_the_content(pair: list[Case]) -> None:
    first, second = pair
    assert (first.canonical() == second.canonical()) == (first.id("c") == second.id("c"))


@pytest.mark.parametrize("field", OTHERS)
def test_every_field_is_part_of_the_identity(field: str) -> None:
    other = replace(BASE, **{field: OTHERS[field]})
    assert other != BASE
    assert other.id("check") != BASE.id("check")


def test_the_check_is_part_of_the_identity() -> None:
    assert BASE.id("row") != BASE.id("column")


def test_the_order_of_dims_is_not_part_of_the_identity() -> None:
    turned = replace(BASE, dims={"bias": True, "n": 4})
    assert turned == BASE and turned.id("c") == BASE.id("c") and hash(turned) == hash(BASE)


def test_the_identity_is_the_same_in_another_process() -> None:
    code = "from tpcheck.case import Case; print(Case(dims={'n': 4}, seed=7).id('row'))"
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert there == Case(dims={"n": 4}, seed=7).id("row")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Case(mesh={"dp": 2, "tp": 2}), Case(mesh={"tp": 2, "dp": 2})),
        (Case(dims={"bias": True}), Case(dims={"bias": 1})),
        (Case(dims={"scale": 1}), Case(dims={"scale": 1.0})),
    ],
    ids=["mesh-order", "bool-int", "int-float"],
)
def test_cases_that_compare_equal_have_equal_hashes(first: Case, second: Case) -> None:
    assert first != second or hash(first) == hash(second)


def test_meshes_whose_axes_are_ordered_otherwise_are_different_cases() -> None:
    first, second = Case(mesh={"dp": 2, "tp": 2}), Case(mesh={"tp": 2, "dp": 2})
    assert first.coordinates(1) != second.coordinates(1)
    assert first.id("c") != second.id("c")
    assert first != second


def test_the_ranks_that_save_differ_in_their_degree_alone() -> None:
    case = Case(dims={"n": 4}, mesh={"dp": 2, "tp": 2}, seed=7, saved_at=4)
    assert case.when_saved == replace(case, mesh={"dp": 2, "tp": 4}, saved_at=0)
    assert replace(case, saved_at=0).when_saved == replace(case, saved_at=0)


def test_a_case_cannot_be_changed() -> None:
    given_dims, given_mesh = {"n": 4}, {"tp": 2}
    case = Case(dims=given_dims, mesh=given_mesh)
    given_dims["n"], given_mesh["tp"] = 9, 9

    assert (case["n"], case.tp) == (4, 2)
    with pytest.raises(FrozenInstanceError):
        case.seed = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        case.dims["n"] = 3  # type: ignore[index]
    with pytest.raises(TypeError):
        case.mesh["tp"] = 3  # type: ignore[index]


MALFORMED: list[tuple[str, dict[str, Any], str]] = [
    ("unknown field", {"sede": 1}, "'seed'"),
    ("dims is a list", {"dims": [1]}, "case.dims"),
    ("dims is null", {"dims": None}, "case.dims"),
    ("mesh is a string", {"mesh": "tp"}, "case.mesh"),
    ("dim is null", {"dims": {"n": None}}, "case.dims['n']=None"),
    ("dim is a list", {"dims": {"n": [1]}}, "case.dims['n']=[1]"),
    ("unknown dtype", {"dtype": "float8"}, "case.dtype='float8'"),
    ("dtype is a list", {"dtype": ["float64"]}, "case.dtype"),
    ("dtype holds a line break", {"dtype": "float\n64"}, "case.dtype"),
    ("unknown memory", {"memory": "tiled"}, "case.memory='tiled'"),
    ("saved at no degree", {"saved_at": -1}, "case.saved_at=-1"),
    ("saved by a flag", {"saved_at": True}, "case.saved_at=True"),
    ("saved by more ranks", {"saved_at": 5000}, "case.mesh={'tp': 5000}"),
    ("no tp axis", {"mesh": {"dp": 2}}, "'tp'"),
    ("empty mesh", {"mesh": {}}, "'tp'"),
    ("degree 0", {"mesh": {"tp": 0}}, "case.mesh['tp']=0"),
    ("degree true", {"mesh": {"tp": True}}, "case.mesh['tp']=True"),
    ("degree 2.0", {"mesh": {"tp": 2.0}}, "case.mesh['tp']=2.0"),
    ("negative seed", {"seed": -1}, "case.seed=-1"),
    ("seed is text", {"seed": "1"}, "case.seed='1'"),
    ("no microbatch", {"microbatches": 0}, "case.microbatches=0"),
    ("microbatches true", {"microbatches": True}, "case.microbatches=True"),
    ("step is 1", {"step": 1}, "case.step"),
    ("seed of more than 64 bits", {"seed": 2**64}, "case.seed=18446744073709551616"),
    ("seed that can't be printed", {"seed": 10**5000}, "case.seed=a int that can't be shown"),
    ("absurd microbatches", {"microbatches": 10**9}, "case.microbatches=1000000000"),
    ("absurd dim", {"dims": {"n": 2**63}}, "case.dims['n']=9223372036854775808"),
    ("dim is not finite", {"dims": {"n": float("nan")}}, "case.dims['n']=nan"),
    ("giant dim", {"dims": {"n": "x" * 10**6}}, "case.dims['n']='xxx"),
    ("giant name", {"dims": {"x" * 10**6: 1}}, "case.dims"),
    ("name is a number", {"dims": {3: 1}}, "case.dims has the name 3"),
    ("axis is a number", {"mesh": {"tp": 2, 3: 1}}, "case.mesh has the axis 3"),
    ("absurd mesh", {"mesh": {"dp": 10**9, "tp": 10**9}}, "case.mesh"),
    ("unknown giant field", {"x" * 10**6: 1}, "no field"),
    ("giant dtype", {"dtype": "x" * 10**6}, "case.dtype"),
    ("magnitude is a float", {"magnitude": 0.5}, "case.magnitude"),
]


@pytest.mark.parametrize(
    ("data", "named"), [m[1:] for m in MALFORMED], ids=[m[0] for m in MALFORMED]
)
def test_each_malformed_field_is_named_in_one_line(data: dict[str, Any], named: str) -> None:
    with pytest.raises(CaseError) as caught:
        Case.from_dict(data)
    assert named in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 400


@pytest.mark.parametrize("data", [None, 3, "case", [], True])
def test_what_is_no_object_is_no_case(data: Any) -> None:
    with pytest.raises(CaseError, match="JSON object"):
        Case.from_dict(data)


def test_a_missing_dim_suggests_the_near_one() -> None:
    with pytest.raises(CaseError, match=r"'in_featuers'.*'in_features'"):
        Case(dims={"in_features": 3})["in_featuers"]
    assert Case().get("absent", 5) == 5


def test_coordinates_are_row_major_with_the_last_axis_innermost() -> None:
    case = Case(mesh={"pp": 2, "dp": 3, "tp": 4})
    listed = [tuple(case.coordinates(r).values()) for r in range(case.world_size)]

    assert listed == [(p, d, t) for p in range(2) for d in range(3) for t in range(4)]
    assert list(case.coordinates(5)) == ["pp", "dp", "tp"]
    assert case.coordinates(5) == {"pp": 0, "dp": 1, "tp": 1}


@settings(max_examples=30)
@given(cases)
def test_no_two_ranks_share_their_coordinates(case: Case) -> None:
    placed = {tuple(case.coordinates(r).items()) for r in range(case.world_size)}
    assert len(placed) == case.world_size == case.tp * case.dp * case.mesh["ep"]


def test_a_description_leaves_out_what_is_at_its_default() -> None:
    assert Case(dims={"n": 3}).describe() == "tp=2 float64 n=3 seed=0"
    loud = Case(mesh={"dp": 2, "tp": 1}, microbatches=2, step=True, memory="sliced", magnitude=-6)
    assert "family=zeros" in Case(family="zeros").describe()
    assert set(loud.describe().split()) >= {
        "dp=2", "tp=1", "microbatches=2", "step=True", "memory=sliced", "magnitude=-6"
    }  # fmt: skip
