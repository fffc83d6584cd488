"""`tpcheck.audit`: what plans match, skip and shard, without ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from fixtures.plans import qwen
from tpcheck import InvalidArgument, Plan, audit
from tpcheck.figures.plan import Audit

CONFIG = qwen.QwenConfig(
    vocab_size=48,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
)
WHOLE = qwen.PLAN.whole
REDUCED = qwen.PLAN.reduced


def model(**changes: Any) -> qwen.QwenForCausalLM:
    with torch.device("meta"):
        return qwen.QwenForCausalLM(replace(CONFIG, **changes))


def plan(changes: dict[str, Any] | None = None, *, without: str = "-") -> Plan:
    """The right plan, with entries changed and those that contain `without` left out."""
    entries = {k: v for k, v in qwen.full_plan().items() if without not in k}
    return Plan(entries | (changes or {}), whole=WHOLE, reduced=REDUCED)


def found(result: Audit) -> list[tuple[str, tuple[str, ...]]]:
    return [(finding.code, finding.names) for finding in result.findings]


def styles() -> Any:
    return pytest.importorskip("torch.distributed.tensor.parallel")


# ---- right plans


@pytest.mark.parametrize("as_objects", [False, True])
@pytest.mark.parametrize("top", [qwen.TOP_PLAN, qwen.TOP_PLAN_GATHERED])
def test_a_right_plan_has_no_finding(as_objects: bool, top: dict[str, str]) -> None:
    entries = qwen.full_plan(top)
    given = qwen.resolve(entries) if as_objects else entries
    result = audit(model(), Plan(given, WHOLE, REDUCED), tp=2)
    assert result.findings == []
    assert {e.key: len(e.matched) for e in result.entries} == {
        key: 3 if "layers" in key else 1 for key in entries
    }
    assert all(e.expected == len(e.matched) == e.sharded for e in result.entries)
    where = {p.name: p.placement for p in result.parameters}
    assert where["model.embed_tokens.weight"] == "Shard(0)"
    assert where["model.layers.1.self_attn.o_proj.weight"] == "Shard(1)"
    assert where["model.layers.1.mlp.gate_proj.weight"] == "Shard(0)"
    assert where["model.norm.weight"] == "whole"


def test_bytes_are_those_of_the_shards() -> None:
    result = audit(model(), plan(), tp=2)
    norms = 4 * ((2 * 3 + 1) * 16 + 2 * 3 * 8)
    assert result.whole_bytes == sum(p.numel() * 4 for p in model().parameters())
    assert result.held_bytes == result.promised_bytes == norms + (result.whole_bytes - norms) // 2


def test_nested_plans_and_a_lone_style() -> None:
    nested = Plan({"model": qwen.BASE_PLAN, **qwen.TOP_PLAN}, WHOLE, REDUCED)
    assert audit(model(), nested, tp=2).findings == []
    colwise = styles().ColwiseParallel
    lone = audit(nn.Linear(4, 8), colwise(), tp=2)
    assert [(p.name, p.placement) for p in lone.parameters] == [
        ("weight", "Shard(0)"),
        ("bias", "Shard(0)"),
    ]


def test_uneven_splits_are_told() -> None:
    result = audit(nn.ModuleDict({"up": nn.Linear(4, 7, bias=False)}), {"up": "colwise"}, tp=2)
    assert result.findings == []
    assert "uneven: 4 of 7 on the first rank, 3 on the last" in result.parameters[0].reason
    assert result.held_bytes == 4 * 4 * 4


# ---- entries that match nothing


def test_fused_projections_are_suggested_for_what_they_fuse() -> None:
    result = audit(model(merge_qkv=True), plan(), tp=2)
    assert result.codes[0] == "plan-entry-unmatched"
    near = {f.entry: f.suggestions[0] for f in result.findings if f.suggestions}
    assert near["model.layers.*.self_attn.k_proj"] == "model.layers.*.self_attn.qkv_proj"
    assert near["model.layers.*.mlp.up_proj"] == "model.layers.*.mlp.gate_up_proj"
    entry = next(e for e in result.entries if e.key.endswith("q_proj"))
    assert (len(entry.matched), entry.expected) == (0, 3)


def test_a_plan_for_another_root_is_told_the_root() -> None:
    for entries in (qwen.BASE_PLAN, {f"model.model.{k}": v for k, v in qwen.BASE_PLAN.items()}):
        result = audit(model(), Plan(entries), tp=2)
        near = {f.entry: f.suggestions[:1] for f in result.findings if f.entry}
        assert len(near) == len(qwen.BASE_PLAN)
        for key, suggestion in near.items():
            assert suggestion == ("model." + key.removeprefix("model.model."),)
        assert result.held_bytes == result.whole_bytes > result.promised_bytes


def test_a_wrapper_is_named() -> None:
    wrapped = model()
    wrapped.model.layers[1].mlp = nn.ModuleDict({"_orig_mod": wrapped.model.layers[1].mlp})
    result = audit(wrapped, plan(), tp=2)
    assert result.codes == ["plan-entry-unmatched", "parameter-not-sharded"]
    first = result.findings[0]
    assert first.names == ("model.layers.1.mlp",)
    assert "matches 2 of 3" in first.message
    whole = nn.ModuleDict({"module": model()})
    message = audit(whole, plan(), tp=2).findings[0].message
    assert "DistributedDataParallel" in message and "module.model.embed_tokens" in message


def test_a_declaration_that_matches_nothing_is_found() -> None:
    result = audit(model(), Plan(qwen.full_plan(), (*WHOLE, "*layernrom*"), REDUCED), tp=2)
    assert found(result) == [("plan-entry-unmatched", ("*layernrom*",))]


# ---- what stays whole


def test_layers_left_out_are_named_with_their_siblings() -> None:
    some = {k.replace("*", "0"): v for k, v in plan().entries.items() if "mlp" in k}
    result = audit(model(), plan(some, without="mlp"), tp=2)
    assert found(result) == [
        ("parameter-not-sharded", tuple(f"model.layers.{i}.mlp.{n}_proj.weight" for i in (1, 2)))
        for n in ("down", "gate", "up")
    ]
    assert "left out, while model.layers.0.mlp.down_proj.weight" in result.findings[0].message


def test_a_style_that_shards_nothing() -> None:
    from torch.distributed.tensor import Replicate

    prepare = styles().PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Replicate()
    )
    entries = qwen.resolve({k: v for k, v in qwen.full_plan().items() if "mlp" not in k})
    result = audit(model(), Plan({**entries, "model.layers.*.mlp": prepare}, WHOLE, REDUCED), tp=2)
    assert result.codes == ["parameter-not-sharded"]
    assert len(result.findings) == 3
    for finding in result.findings:
        assert "PrepareModuleInput ('model.layers.*.mlp') shards nothing" in finding.message
    entry = next(e for e in result.entries if e.style == "PrepareModuleInput")
    assert (len(entry.matched), entry.sharded) == (3, 0)


def test_what_is_not_declared_is_an_error() -> None:
    result = audit(model(), Plan(qwen.full_plan(), WHOLE[1:], REDUCED), tp=2)
    assert result.codes == ["parameter-not-sharded"]
    assert [len(f.names) for f in result.findings] == [3, 3]
    assert (
        audit(model(), Plan(qwen.full_plan(), WHOLE[1:], REDUCED), tp=2, whole=WHOLE[:1]).codes
        == []
    )


# ---- bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: audit(nn.Linear, {}, tp=2), "not an nn.Module"),
        (lambda: audit(nn.Linear(2, 2), {}), "give audit(tp="),
        (lambda: audit(nn.Linear(2, 2), {}, tp=0), "is not a degree"),
        (lambda: audit(nn.Linear(2, 2), ["colwise"], tp=2), "a plan is a mapping"),
        (lambda: audit(nn.Linear(2, 2), {"": "colwize"}, tp=2), "did you mean 'colwise'"),
        (lambda: audit(nn.Linear(2, 2), {"a.b": "x"}, tp=2), r"plan\['a.b'\]: the style 'x' is un"),
        (lambda: audit(nn.Linear(2, 2), {"": 3}, tp=2), "this is a int"),
        (lambda: audit(nn.Linear(2, 2), {0: "colwise"}, tp=2), "0 is not one"),
        (lambda: Plan({}, whole="*norm*"), "give a tuple"),
        (lambda: audit(nn.Linear(2, 2), Plan({}, tied=(("a", "b"),)), tp=2), "names 'a'"),
    ],
)
def test_mistakes_are_one_clear_line(call: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words.replace("(", r"\(")) as caught:
        call()
    assert "\n" not in str(caught.value)


# ---- one module in several places


def shared(times: int) -> nn.Module:
    layer = nn.ModuleDict({"up": nn.Linear(8, 16), "down": nn.Linear(16, 8)}).to("meta")
    return nn.ModuleDict({"layers": nn.ModuleList([layer] * times)})


def test_a_module_in_several_places_is_sharded_by_any_of_its_names() -> None:
    """ALBERT: one layer, run several times."""
    plan = {"layers.0.up": ColwiseParallel(), "layers.0.down": RowwiseParallel()}
    found = audit(shared(3), plan, tp=2)
    assert found.findings == []
    placed = {p.name: p.placement for p in found.parameters}
    assert placed["layers.2.up.weight"] == "Shard(0)"
    left = audit(shared(3), {"layers.1.up": ColwiseParallel()}, tp=2)
    assert {n for f in left.findings for n in f.names if "down.weight" in n} == {
        f"layers.{i}.down.weight" for i in range(3)
    }


def test_a_style_is_not_put_on_one_module_twice() -> None:
    """torch does so, silently: the second hook gets what the first has made a plain tensor."""
    plan = {"layers.*.up": ColwiseParallel(), "layers.*.down": RowwiseParallel()}
    found = audit(shared(2), plan, tp=2).findings
    assert [(f.code, f.names) for f in found] == [
        ("wrong-placement", ("layers.1.up",)),
        ("wrong-placement", ("layers.1.down",)),
    ]
    assert "the same module as layers.0.up" in found[0].message
    assert audit(shared(1), plan, tp=2).findings == []


@pytest.mark.parametrize("what", ["whole", "optional"])
def test_one_pattern_is_not_one_for_each_of_its_letters(what: str) -> None:
    given: Any = {what: "norm*"}
    with pytest.raises(InvalidArgument, match=f"{what}='norm\\*': give a tuple"):
        audit(model(), qwen.PLAN, tp=2, **given)
    with pytest.raises(InvalidArgument, match=f"the plan's {what}='norm\\*': give a tuple"):
        Plan({}, **given)
