"""Column splits without a row split that consumes them, and the reverse."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
)

from tests.unit.plan.models import (
    A,
    D,
    H,
    attention,
    faults,
    linear,
    mlp,
    model,
)
from tpcheck import Plan, audit


def test_down_before_up_is_paired_all_the_same() -> None:
    """Llama's w1, w2, w3: the row split is registered between the column splits."""
    assert faults(model(), {}) == []


@pytest.mark.parametrize(("up", "down"), [("up", "down"), ("w1", "w2"), ("c_fc", "fc_out")])
def test_styles_in_each_others_place(up: str, down: str) -> None:
    given = nn.ModuleList([nn.ModuleDict({up: linear(H, 32), down: linear(32, H)})])
    plan: dict[str, Any] = {f"*.{up}": "colwise", f"*.{down}": "rowwise"}
    assert audit(given, plan, tp=2).findings == []
    found = audit(given, {f"*.{up}": "rowwise", f"*.{down}": "colwise"}, tp=2).findings
    assert [(f.code, f.names) for f in found] == [
        ("wrong-placement", (f"0.{down}",)),
        ("wrong-placement", (f"0.{up}",)),
    ]


def test_a_head_outside_all_blocks_is_the_models_output() -> None:
    assert faults(model(), {"head": "colwise_rep"}) == []


def test_column_splits_whose_row_split_is_in_another_module() -> None:
    """BERT: attention.self.* and attention.output.dense, intermediate.dense and output.dense."""
    inner = nn.ModuleDict({n: linear(H, A * D) for n in ("query", "key", "value")})
    layer = nn.ModuleDict(
        {
            "attention": nn.ModuleDict(
                {"self": inner, "output": nn.ModuleDict({"dense": linear(A * D, H)})}
            ),
            "intermediate": nn.ModuleDict({"dense": linear(H, 32)}),
            "output": nn.ModuleDict({"dense": linear(32, H)}),
        }
    )
    given = nn.ModuleDict({"layer": nn.ModuleList([layer])})
    plan: dict[str, Any] = {
        "layer.*.attention.self.*": "colwise",
        "layer.*.attention.output.dense": "rowwise",
        "layer.*.intermediate.dense": "colwise",
        "layer.*.output.dense": "rowwise",
    }
    assert audit(given, plan, tp=2).findings == []
    plan["layer.*.attention.output.dense"] = "rowwise_rep"
    (found,) = audit(given, plan, tp=2).findings
    assert found.code == "wrong-placement" and len(found.names) == 3


def test_the_order_of_registration_does_not_matter_to_siblings() -> None:
    def layer(out: nn.Module, inner: nn.Module) -> nn.Module:
        return nn.ModuleDict({"out": nn.ModuleDict({"dense": out}), "self": inner})

    inner = nn.ModuleDict({n: linear(H, A * D) for n in ("query", "key", "value")})
    block = nn.ModuleDict(
        {
            "attention": layer(linear(A * D, H), inner),
            "feed": layer(linear(32, H), nn.ModuleDict({"a": linear(H, 32), "b": linear(H, 32)})),
        }
    )
    given = nn.ModuleDict({"layers": nn.ModuleList([block])})
    plan: dict[str, Any] = {"layers.*.*.self.*": "colwise", "layers.*.*.out.dense": "rowwise"}
    assert audit(given, plan, tp=2).findings == []
    for alone in ({"layers.*.feed.self.*": "colwise"}, {"layers.*.attention.out.dense": "rowwise"}):
        found = audit(given, Plan(alone, whole=("*",)), tp=2).findings
        assert [f.code for f in found] == ["wrong-placement"], found


class HeadAware(ParallelStyle):
    """A style of one's own: the rows of a fused [q | k | v], each rank its heads'."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        rows = module.get_parameter("weight").detach().unflatten(0, (3, A, -1))
        own = rows.transpose(0, 1).flatten(0, 2)
        module.weight = nn.Parameter(distribute_tensor(own, device_mesh, [Shard(0)]))
        return module


def test_beside_a_style_of_ones_own_nothing_is_known() -> None:
    def build() -> nn.Module:
        block = nn.ModuleDict({"qkv": linear(H, 3 * A * D), "o_proj": linear(A * D, H)})
        return nn.ModuleDict({"layers": nn.ModuleList([block])})

    row = {"layers.*.o_proj": RowwiseParallel()}
    assert audit(build(), {"layers.*.qkv": HeadAware(), **row}, tp=2).findings == []
    found = audit(build(), Plan(row, whole=("*.qkv.weight",)), tp=2).findings
    assert [finding.names for finding in found] == [("layers.0.o_proj",)]


def test_a_row_split_within_a_nested_module() -> None:
    gated = nn.ModuleDict({"gate_proj": linear(H, A * D), "o_proj": linear(A * D, H)})
    block = nn.ModuleDict({f"{n}_proj": linear(H, A * D) for n in "qkv"} | {"out": gated})
    given = nn.ModuleDict({"layers": nn.ModuleList([block])})
    plan = {
        "layers.*.*_proj": "colwise",
        "layers.*.out.gate_proj": "colwise",
        "layers.*.out.o_proj": "rowwise",
    }
    assert audit(given, plan, tp=2).findings == []


@pytest.mark.parametrize("style", ["colwise", "rowwise_rep"])
def test_features_that_no_row_split_takes(style: str) -> None:
    (names,) = faults(model(), {"layers.*.mlp.w2": style})
    assert {"layers.0.mlp.w1", "layers.1.mlp.w3"} <= set(names)


def test_a_row_split_whose_input_is_whole() -> None:
    (names,) = faults(model(), {"layers.*.attn.[qkv]_proj": None})
    assert names == ("layers.0.attn.o_proj", "layers.1.attn.o_proj")
    assert faults(model(), {"layers.*.attn.[qkv]_proj": "colwise_rep"}) == [names]


def test_sizes_that_torch_splits_unevenly_and_does_not_take() -> None:
    def build(size: int) -> nn.Module:
        block = nn.ModuleDict({"up": linear(H, size), "down": linear(size, H)})
        return nn.ModuleDict({"layers": nn.ModuleList([block])})

    plan: dict[str, Any] = {"layers.*.up": ColwiseParallel(), "layers.*.down": RowwiseParallel()}
    (found,) = audit(build(33), plan, tp=2).findings
    assert found.names == ("layers.0.down",) and "in_features=33" in found.message
    assert audit(build(33), plan, tp=3).findings == []
    as_dtensors = {**plan, "layers.*.up": ColwiseParallel(use_local_output=False)}
    assert audit(build(33), as_dtensors, tp=2).findings == []
    strings = {"layers.*.up": "colwise", "layers.*.down": "rowwise"}  # transformers takes them
    assert audit(build(33), strings, tp=2).findings == []


def alone(given: nn.Module, **styles: str) -> list[tuple[str, ...]]:
    """The names of what is wrongly placed in a module outside of all blocks, its linears by name;
    what no style is for stays whole."""
    plan = Plan({name.replace("__", "."): style for name, style in styles.items()}, whole=("*",))
    return [found.names for found in audit(given, plan, tp=2).findings]


def test_outside_all_blocks_a_split_whose_features_another_linear_takes_is_no_head() -> None:
    right = {"w1": "colwise", "w3": "colwise", "w2": "rowwise"}
    assert alone(mlp(), **right) == []
    assert alone(mlp(), **right | {"w2": "colwise"}) == [("w1", "w2", "w3")]
    assert alone(mlp(), w1="colwise", w3="colwise") == [("w1", "w3")]
    heads = nn.ModuleDict({"policy": linear(H, 40), "value": linear(H, 8)})
    assert alone(heads, policy="colwise", value="colwise") == []
    named = {f"{name}_proj": "colwise" for name in "qkvo"}
    assert alone(attention(), **named | {"o_proj": "rowwise"}) == []
    assert alone(attention(), **named) == [("q_proj", "k_proj", "v_proj", "o_proj")]
    both = nn.ModuleDict({"attn": attention(), "mlp": mlp()})
    within = {f"attn__{name}": style for name, style in named.items()}
    found = alone(both, **within, **{f"mlp__{n}": s for n, s in right.items()})
    assert [sorted(names) for names in found] == [[f"attn.{n}_proj" for n in "koqv"]]


@pytest.mark.parametrize("path", ["", "blocks.0."])
def test_in_a_module_with_attention_and_an_mlp_each_is_paired_by_itself(path: str) -> None:
    flat: nn.Module = nn.ModuleDict(dict([*attention().named_children(), *mlp().named_children()]))
    given = flat if not path else nn.ModuleDict({"blocks": nn.ModuleList([flat])})
    right = {f"{n}_proj": "colwise" for n in "qkv"} | {"o_proj": "rowwise"}
    right |= {"w1": "colwise", "w3": "colwise", "w2": "rowwise"}

    def wrong(**changes: str) -> list[set[str]]:
        plan = {path + name: style for name, style in {**right, **changes}.items()}
        return [{n.removeprefix(path) for n in f.names} for f in audit(given, plan, tp=2).findings]

    assert wrong() == []
    assert wrong(w2="colwise") == [{"w1", "w2", "w3"}]
    assert wrong(w3="rowwise") == [{"w3"}]
    assert wrong(o_proj="colwise") == [{f"{n}_proj" for n in "qkvo"}]


def test_a_linear_is_split_as_those_of_its_kind_are() -> None:
    """A query, key or value as the others are, a gate as the projection of its shape is."""
    qkv, w13 = "layers.*.attn.[qkv]_proj", "layers.*.mlp.w[13]"
    for others, right, wrong in (
        (qkv, "attn.[qk]_proj", "attn.v_proj"),
        (qkv, "attn.[kv]_proj", "attn.q_proj"),
        (w13, "mlp.w1", "mlp.w3"),
    ):
        split = {f"layers.*.{right}": "colwise", f"layers.*.{wrong}": "rowwise"}
        (names,) = faults(model(), {others: None, **split})
        assert names == tuple(f"layers.{i}.{wrong}" for i in (0, 1))


@pytest.mark.parametrize("style", ["colwise", "rowwise", ColwiseParallel(), RowwiseParallel()])
@pytest.mark.parametrize("inside", [nn.GELU(), nn.LayerNorm(H, elementwise_affine=False)])
def test_a_split_of_what_has_no_parameters(inside: nn.Module, style: Any) -> None:
    assert told_of(inside, style) == [("wrong-placement", ("0.a",))]


@pytest.mark.parametrize("style", [ColwiseParallel(), RowwiseParallel()])
@pytest.mark.parametrize("inside", [nn.LayerNorm(H), nn.Conv1d(4, 4, 3)])
def test_a_split_of_what_has_no_matrix(inside: nn.Module, style: Any) -> None:
    """Its sizes are not those of features."""
    first, *others = told_of(inside, style, whole=("*.a.*",))
    assert first == ("wrong-placement", ("0.a",))
    assert all(names == ("0.a.bias",) for _, names in others)


def told_of(inside: nn.Module, style: Any, whole: tuple[str, ...] = ()) -> list[Any]:
    """A module beside two linears that are split."""
    given = nn.ModuleList([nn.ModuleDict({"a": inside, "up": linear(H, 32), "b": linear(32, H)})])
    plan = Plan({"*.up": "colwise", "*.b": "rowwise", "*.a": style}, whole=whole)
    return [(f.code, f.names) for f in audit(given, plan, tp=2).findings]
