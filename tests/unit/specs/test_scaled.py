"""Scaled down, a model keeps its ratios, and each rank its share of the heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from tpcheck import Case, specs
from tpcheck.configurations import MODELS, Model
from tpcheck.errors import InvalidArgument
from tpcheck.placement import Shard
from tpcheck.search import drawing
from tpcheck.search.of_spec import cases_of
from tpcheck.space import Space
from tpcheck.specs import scaled

DEGREES = (1, 2, 3, 4, 8, 16)
ATTENTION = [name for name, m in MODELS.items() if scaled.lacks("attention", m) is None]


def sizes(part: str, model: Model | str, tp: int) -> list[dict[str, int]]:
    among = scaled.among(part, model)
    assert among is not None
    return list(among({"tp": tp}))  # type: ignore[arg-type]


def whole_degree(model: Model, dims: dict[str, int], tp: int) -> Fraction:
    """T: the model's degree that these dims stand for."""
    return Fraction(tp * model.kv_heads, dims["kv_heads"])


def lost(model: Model, dims: dict[str, int], tp: int) -> Iterator[str]:
    """Which ratios of the model a set of dims has not."""
    pairs = [("hidden", "intermediate"), ("heads", "kv_heads")]
    for one, other in (pair for pair in pairs if set(pair) <= set(dims)):
        of = model.widths if other == "intermediate" else (model.kv_heads,)
        if not any(dims[other] * getattr(model, one) == width * dims[one] for width in of):
            yield f"{one} : {other}"
    if "heads" in dims:
        small, large = dims["heads"] * dims["head_dim"], model.heads * model.head_dim
        if small * model.hidden != large * dims["hidden"]:
            yield "width of all heads : hidden"
        degree = whole_degree(model, dims, tp)
        if degree.denominator != 1 or dims["heads"] * degree != model.heads * tp:
            yield "heads per rank"


@pytest.mark.parametrize("tp", DEGREES)
@pytest.mark.parametrize("part", ["attention", "mlp", "block"])
def test_ratios_are_kept_at_each_degree(part: str, tp: int) -> None:
    models = [model for model in MODELS.values() if scaled.lacks(part, model) is None]
    for model in models:
        for dims in sizes(part, model, tp):
            assert list(lost(model, dims, tp)) == [], (model.name, dims)
            assert part != "block" or dims["intermediate"] % tp == 0


def test_the_twin_a_ratio_that_is_lost_is_seen() -> None:
    model = MODELS["llama-3-70b"]
    right = sizes("block", model, 2)[0]
    assert list(lost(model, right, 2)) == []
    for field, says in (
        ("intermediate", "hidden : intermediate"),
        ("heads", "heads : kv_heads"),
        ("hidden", "width of all heads : hidden"),
        ("kv_heads", "heads per rank"),
    ):
        assert says in lost(model, {**right, field: 2 * right[field]}, 2)
    other = replace(model, intermediate=28671)
    assert list(lost(other, right, 2)) == ["hidden : intermediate"]


@pytest.mark.parametrize("tp", DEGREES)
def test_what_the_degree_divides_it_divides_in_the_model(tp: int) -> None:
    for model in MODELS.values():
        widths = (model.heads * model.head_dim, *model.widths)
        divided = {width % tp == 0 for width in widths}
        for dims in sizes("mlp", model, tp):
            assert (dims["intermediate"] % tp == 0) in {w % tp == 0 for w in model.widths}
        assert {dims["out_features"] % tp == 0 for dims in sizes("column", model, tp)} <= divided
        for dims in sizes("embedding", model, tp):
            assert dims["vocab"] % tp == model.vocab % tp
            off = dims["vocab"] - Fraction(model.vocab * dims["hidden"], model.hidden)
            assert abs(off) <= tp
        for part, name in (("embedding", "vocab"), ("mlp", "intermediate"), ("row", "in_features")):
            for dims in sizes(part, model, tp):  # no rank has none of it
                assert Shard(0).indices(dims[name], tp, tp - 1), (model.name, dims)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("tp", [2, 4])
def test_fewer_kv_heads_than_ranks_as_many_and_more(name: str, tp: int) -> None:
    model = MODELS[name]
    found = {dims["kv_heads"] for dims in sizes("attention", model, tp)}
    for kv_heads in (tp // 2, tp, 2 * tp):
        degree = Fraction(tp * model.kv_heads, kv_heads)
        fits = model.kv_heads % kv_heads == 0 and model.heads % degree == 0
        small = model.heads // model.kv_heads * kv_heads <= scaled.MOST_HEADS
        assert (kv_heads in found) == (fits and small), kv_heads


def test_single_ratios_that_are_known_for_trouble() -> None:
    def found(part: str, name: str, tp: int, *dims: str) -> list[tuple[int, ...]]:
        return [tuple(one[dim] for dim in dims) for one in sizes(part, name, tp)]

    heads = ("heads", "kv_heads")
    assert (8, 1) in found("attention", "llama-3-70b", 2, *heads)  # as at degree 16: replicas
    assert (16, 2) in found("attention", "llama-3-70b", 2, *heads)  # as at 8: one each
    assert (16, 1) in found("attention", "falcon-40b", 4, *heads)
    assert (12, 12) in found("attention", "gpt-3", 4, *heads)  # three on a rank
    assert set(found("attention", "gemma-2b", 4, *heads)) == {(8, 1)}  # MQA
    assert found("attention", "falcon-7b", 2) == []  # 71 heads
    assert set(found("attention", "falcon-7b", 1, *heads)) == {(71, 1)}
    assert (10, 8, 2) in found("attention", "qwen3-32b", 2, "hidden", "heads", "head_dim")
    assert (3, 2, 2) in found("attention", "gemma-7b", 2, "hidden", "heads", "head_dim")
    assert (4, 14) in found("mlp", "llama-3-8b", 2, "hidden", "intermediate")
    assert (8, 26) in found("mlp", "llama-3.1-405b", 2, "hidden", "intermediate")
    widths = found("mlp", "deepseek-v3", 2, "hidden", "intermediate")
    assert {(7, 18), (7, 2)} <= set(widths)  # of a dense layer, and of an expert
    assert all(vocab % 4 == 1 for (vocab,) in found("embedding", "gpt-3", 4, "vocab"))


def test_the_smallest_comes_first_and_the_case_names_its_model() -> None:
    found = sizes("block", "all", 4)
    total = [sum(v for v in one.values() if type(v) is int) for one in found]
    assert total == sorted(total)
    assert {one["model"] for one in sizes("block", "qwen3-32b", 4)} == {"qwen3-32b"}


def test_flags_are_the_models() -> None:
    qwen, gpt = sizes("block", "qwen3-8b", 2)[0], sizes("block", "gpt-3", 2)[0]
    flags = ("norm", "activation", "bias", "qk_norm", "rotary", "causal")
    assert [qwen[flag] for flag in flags] == ["rms", "swiglu", False, True, True, True]
    assert [gpt[flag] for flag in flags] == ["layer", "gelu", True, False, False, True]


@pytest.mark.parametrize(
    ("part", "name", "why"),
    [
        ("attention", "deepseek-v3", "latent"),
        ("block", "deepseek-v3", "latent"),
        ("block", "qwen3-30b-a3b", "experts"),
        ("block", "falcon-40b", "side by side"),
    ],
)
def test_a_part_without_a_spec_is_refused_by_name_and_left_out_of_all(
    part: str, name: str, why: str
) -> None:
    spec = getattr(specs, part)
    with pytest.raises(InvalidArgument, match=f"{name} has no {part} .*{why}"):
        spec(models=["llama-3-8b", name])
    among = scaled.among(part, "all")
    assert among is not None
    found = {dims["model"] for dims in among({"tp": 2})}
    assert name not in found and "llama-3-8b" in found


def test_a_part_that_there_is_not_is_refused_and_without_models_there_is_nothing() -> None:
    with pytest.raises(InvalidArgument, match="give one of attention, mlp, block"):
        scaled.among("norm", "all")
    assert scaled.among("mlp", ()) is None


def test_a_model_of_ones_own() -> None:
    own = replace(MODELS["qwen3-8b"], name="own", hidden=3072, heads=24, kv_heads=6)
    requires = specs.block().requires
    assert requires is not None
    for tp in (2, 4, 8):  # 6 K/V heads are not for four ranks, 2 are
        for dims in sizes("block", own, tp):
            assert list(lost(own, dims, tp)) == [] and dims["model"] == "own"
            assert requires(Case(dims=dims, mesh={"tp": tp})) is None
    assert {dims["kv_heads"] for dims in sizes("attention", own, 4)} == {1, 2}


def test_all_cases_of_a_spec_with_models_are_theirs() -> None:
    spec, space = specs.attention(models=["llama-3-70b", "gpt-3"]), Space((2,), ranks=4)
    cases: list[Case] = drawing.sample(cases_of(spec, space), 40, "k")
    assert {case["model"] for case in cases} == {"llama-3-70b", "gpt-3"}
    assert {case["heads"] // case["kv_heads"] for case in cases} == {1, 8}
    usual = drawing.sample(cases_of(specs.attention(), space), 40, "k")
    assert all(case.get("model") is None for case in usual)


def test_even_specs_have_even_sizes() -> None:
    cases = drawing.sample(cases_of(specs.embedding(even=True, models="all"), Space((4,))), 40, "k")
    assert all(case["vocab"] % 4 == 0 for case in cases)
    assert "gpt-3" not in {case["model"] for case in cases}
    even = scaled.among("mlp", "all", even=True)
    assert even is not None and all(d["intermediate"] % 3 == 0 for d in even({"tp": 3}))
    assert not all(d["intermediate"] % 3 == 0 for d in sizes("mlp", "all", 3))
