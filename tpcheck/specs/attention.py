"""Spec of tensor-parallel attention: MHA, GQA, MQA, K/V replicas when R > n_kv."""

from __future__ import annotations

from typing import Any

from torch import nn

from tpcheck.budget import Budget, linear_in, linear_out, summed_gradients
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.placement import Entry, Heads
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.saved import saved_by_a_rank
from tpcheck.specs.tokens import dropped, stream_layout, token_dims, tokens_of


def attention(
    *, sequence_parallel: bool = False, dropout: tuple[float, ...] = (), models: Models = ()
) -> Spec:
    """Attention split by heads: x `Replicate` → y `Replicate` (both `Shard(1)` under SP).

    Dims: `batch`, `seq`, `hidden`, `heads`, `kv_heads` (every valid pair, also fewer K/V heads
    than ranks), `head_dim`, `bias`, `norm`, `residual`, `qk_norm`, `rotary`, `causal`.
    Parameters: `q_proj.*` by heads, `k_proj.*` and `v_proj.*` by K/V heads (rank r holds head
    r // (R / n_kv) when R > n_kv), `o_proj.weight` `Shard(1)` by heads; `norm.*`, `q_norm.weight`,
    `k_norm.weight`, `o_proj.bias` replicated. Under `models`, only their sizes (`specs/scaled`).
    With rates of `dropout`, the dim `dropout`: attention's weights are dropped, and what `o_proj`
    gives, before the residual.
    """
    sizes = scaled.among("attention", models)

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        own = {
            "bias": st.booleans(),
            "norm": st.sampled_from(["none", "layer", "rms"]),
            "residual": st.booleans(),
        }
        dims = token_dims(sequence_parallel, batch=2) | head_dims(sizes) | own | attention_flags()
        return strategies.cases(space, dims | dropped(dropout), among=sizes)

    return Spec(
        name="attention_sp" if sequence_parallel else "attention",
        modes=MODES[1:],
        cases=cases,
        reference=_with_all,
        inputs=tokens_of("hidden"),
        layout=lambda case: stream_layout(attention_params(case), sequence_parallel),
        budget=lambda case: attention_budget(case, sequence_parallel),
        requires=heads_divide,
    )


def head_dims(sizes: scaled.Among | None = None) -> dict[str, Any]:
    """The dims `hidden`, `heads`, `kv_heads` and `head_dim`; none where `sizes` has them."""
    if sizes is not None:
        return {}
    from hypothesis import strategies as st

    from tpcheck import strategies

    return {
        "hidden": strategies.sizes(2, 8),
        "_counts": strategies.head_counts,
        "heads": lambda d: d["_counts"][0],
        "kv_heads": lambda d: d["_counts"][1],
        "head_dim": st.sampled_from([2, 4]),
    }


def attention_flags() -> dict[str, Any]:
    """The dims `qk_norm`, `rotary` and `causal`."""
    from hypothesis import strategies as st

    return {flag: st.booleans() for flag in ("qk_norm", "rotary", "causal")}


def _with_all(case: Case) -> reference.Attention:
    """The reference, its norm, residual and dropout included."""
    dropout = case.get("dropout", 0.0)
    return _reference(case, norm=case["norm"], residual=case["residual"], dropout=dropout)


def _reference(case: Case, **given: Any) -> reference.Attention:
    """The reference with the case's dims, and with what is given in the place of some."""
    names = ("hidden", "heads", "kv_heads", "head_dim", "bias", "qk_norm", "rotary", "causal")
    return reference.Attention(**{name: case[name] for name in names} | given)


def attention_budget(case: Case, sequence_parallel: bool) -> Budget:
    """One way in (q, k and v share it), one way out; the sums of gradients that are partial: of
    the q/k norms always, of the norm and the output bias under SP, of K/V replicas."""
    hidden, width = case["hidden"], case["head_dim"]
    elements = case["batch"] * case["seq"] * hidden
    ways = linear_in(elements, sequence_parallel=sequence_parallel)
    ways = ways + linear_out(elements, sequence_parallel=sequence_parallel)
    partial = 2 * width if case["qk_norm"] else 0
    if sequence_parallel:
        vectors = {"none": 0, "rms": 1, "layer": 2}[case["norm"]] + int(case["bias"])
        partial += vectors * hidden
    if case["kv_heads"] < case.tp:
        partial += 2 * case["kv_heads"] * width * (hidden + int(case["bias"]))
    saved = Budget(saved=attention_saved(case, sequence_parallel))
    return ways + summed_gradients(partial) + saved


def attention_saved(case: Case, sequence_parallel: bool) -> int | None:
    """What the reference keeps for backward with the heads of one rank."""

    def part(norm: str) -> nn.Module:
        heads, kv_heads = case["heads"] // case.tp, max(1, case["kv_heads"] // case.tp)
        return _reference(case, heads=heads, kv_heads=kv_heads, norm=norm)

    return saved_by_a_rank(case, part, sequence_parallel)


def attention_params(case: Case, prefix: str = "") -> dict[str, Entry]:
    """The layout of attention's sharded parameters; what is not named is replicated."""
    kinds = ["weight", *(["bias"] if case["bias"] else [])]
    out: dict[str, Entry] = {}
    for kind in kinds:
        out[f"{prefix}q_proj.{kind}"] = Heads(0, case["heads"])
        out[f"{prefix}k_proj.{kind}"] = Heads(0, case["kv_heads"])
        out[f"{prefix}v_proj.{kind}"] = Heads(0, case["kv_heads"])
    return out | {f"{prefix}o_proj.weight": Heads(1, case["heads"])}


def heads_divide(case: Case) -> str | None:
    """Why these head counts don't fit the degree, or None."""
    tp, heads, kv = case.tp, case["heads"], case["kv_heads"]
    if heads % tp:
        return f"heads={heads} is not divisible by tp={tp}; choose a degree that divides the heads"
    if heads % kv:
        return f"heads={heads} is not a multiple of kv_heads={kv}"
    if kv % tp and tp % kv:
        return f"kv_heads={kv} is neither divisible by tp={tp} nor a divisor of it"
    return None
