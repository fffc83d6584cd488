"""A model that nobody here wrote: Llama (GQA) from transformers, sharded by its own `tp_plan`.

The layout is read from the DTensors that the plan makes. transformers' RMSNorm works in float32
whatever the model's dtype, reference and candidate alike, so float64 cases are as sharp as
float32 allows there.
"""

from collections.abc import Mapping
from typing import Any

from tpcheck import Case, Check, KnownFinding, Plan, specs


def _dims(space: Any) -> Any:
    from hypothesis import strategies as st

    from tpcheck import strategies

    return strategies.cases(
        space,
        {
            "batch": st.integers(1, 2),
            "seq": strategies.sizes(1, 6),
            "vocab": _sizes(33),
            "layers": st.integers(1, 2),
            "kv_heads": strategies.multiples("tp", most=2),
            "heads": lambda d: st.sampled_from([d["kv_heads"], 2 * d["kv_heads"]]),
            "head_dim": st.sampled_from([2, 4]),
            "intermediate": _sizes(17),
            "bias": st.booleans(),
        },
    )


def _sizes(most: int) -> Any:
    """Of what is sharded: transformers before 5.21 takes no uneven shards."""
    from importlib.metadata import version

    from packaging.version import Version

    from tpcheck import strategies

    even = Version(version("transformers")) < Version("5.21")
    return strategies.multiples("tp", most=most // 4) if even else strategies.sizes(8, most)


def _config(case: Case) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=case["vocab"],
        hidden_size=case["heads"] * case["head_dim"],
        intermediate_size=case["intermediate"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"],
        head_dim=case["head_dim"],
        attention_bias=case["bias"],
        mlp_bias=case["bias"],
        max_position_embeddings=16,
        attn_implementation="sdpa",
        use_cache=False,
        tie_word_embeddings=False,
    )


def _reference(case: Case) -> Any:
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM(_config(case))


def _candidate(case: Case, mesh: Any) -> Any:
    from tpcheck.adapters.transformers import apply_tp_plan

    return apply_tp_plan(_reference(case), mesh["tp"])


def _plan(case: Case) -> Plan:
    plan, whole = _reference(case).tp_plan, ["*layernorm.weight", "model.norm.weight"]
    if "model.embed_tokens" not in plan:  # as in transformers 5.17
        whole.append("model.embed_tokens.weight")
    return Plan(plan, whole=tuple(whole))


def _forward(model: Any, inputs: Mapping[str, Any]) -> Any:
    return {"logits": model(input_ids=inputs["ids"]).logits}


def _leaves_a_rank_without_a_row(case: Case) -> bool:
    return (case.tp - 1) * -(-case["vocab"] // case.tp) >= case["vocab"]


_empty_shard = KnownFinding(
    package="transformers",
    releases=">=5.23,<5.25",
    code="rank-crash",
    case=Case(
        dims={
            "batch": 1,
            "seq": 1,
            "vocab": 9,
            "layers": 1,
            "kv_heads": 4,
            "heads": 4,
            "head_dim": 2,
            "intermediate": 8,
            "bias": False,
        },
        mesh={"tp": 4},
    ),
    page="docs/findings/transformers-empty-vocabulary-shard.md",
    when=_leaves_a_rank_without_a_row,
)

llama_tp_plan = Check(
    specs.causal_lm(
        _reference,
        cases=_dims,
        forward=_forward,
        name="llama",
        preload=("transformers.models.llama",),
    ),
    candidate=_candidate,
    plan=_plan,
    known=[_empty_shard],
)
