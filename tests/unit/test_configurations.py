"""The figures of released models add up to the parameters that their authors count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpcheck.configurations import MODELS, Experts, Latent, Model, chosen
from tpcheck.errors import InvalidArgument

#: As the files of each release hold them: those of Falcon have the tied head twice.
PUBLISHED = {
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "falcon-7b": 7_217_189_760,
    "falcon-40b": 41_835_970_560,
    "gpt-3": 174_600_000_000,  # rounded: in table D.1
    "deepseek-v3": 671_026_419_200,
}
ROUNDED = {"gpt-3": 50_000_000}


def parameters(model: Model) -> int:
    """How many a model has: embedding and head, and in each layer attention, MLP and norms."""
    norm = model.hidden * (2 if model.norm == "layer" else 1)
    norms = 1 if model.name == "falcon-7b" else 2  # one is shared by attention and MLP
    twice = model.name.startswith("falcon") or not model.tied
    positions = 2048 * model.hidden if model.rotary is None else 0
    whole = model.vocab * model.hidden * (1 + twice) + positions + norm
    each = attention(model) + norms * norm
    return whole + model.layers * each + mlps(model)


def projection(model: Model, rows: int, columns: int) -> int:
    return rows * columns + (columns if model.bias else 0)


def attention(model: Model) -> int:
    attended = model.heads * model.head_dim
    out = projection(model, attended, model.hidden)
    if model.latent is None:
        kv = model.kv_heads * model.head_dim
        norms = 2 * model.head_dim if model.qk_norm else 0
        into = projection(model, model.hidden, attended) + 2 * projection(model, model.hidden, kv)
        return into + out + norms
    q, kv, rotated = model.latent.q_rank, model.latent.kv_rank, model.latent.rotated
    queries = model.hidden * q + q + q * model.heads * (model.head_dim + rotated)
    return queries + model.hidden * (kv + rotated) + kv + kv * 2 * attended + out


def mlp(model: Model, width: int) -> int:
    up = projection(model, model.hidden, width)
    return (2 if model.gated else 1) * up + projection(model, width, model.hidden)


def mlps(model: Model) -> int:
    """Of all layers."""
    if model.experts is None:
        return model.layers * mlp(model, model.intermediate)
    of = model.experts
    router = of.count * model.hidden + (of.count if model.name == "deepseek-v3" else 0)
    routed = (of.count + of.shared) * mlp(model, of.width) + router
    sparse = model.layers - of.dense_layers
    return of.dense_layers * mlp(model, model.intermediate) + sparse * routed


def adds_up(model: Model) -> bool:
    return abs(parameters(model) - PUBLISHED[model.name]) <= ROUNDED.get(model.name, 0)


def test_every_model_has_the_parameters_that_are_published() -> None:
    assert set(MODELS) == set(PUBLISHED)
    assert [name for name, model in MODELS.items() if not adds_up(model)] == []


@pytest.mark.parametrize("name", MODELS)
def test_the_twin_a_wrong_figure_does_not_add_up(name: str) -> None:
    model = MODELS[name]
    for field in ("hidden", "intermediate", "vocab", "layers", "heads", "head_dim"):
        if name == "qwen3-30b-a3b" and field == "intermediate":
            continue  # no layer has it
        assert not adds_up(replace(model, **{field: 2 * getattr(model, field)})), field
    if model.latent is None:
        other = model.heads if model.kv_heads == 1 else 1
        assert not adds_up(replace(model, kv_heads=other))
    if model.experts is not None:
        for field in ("count", "width", "shared", "dense_layers"):
            wrong = replace(model.experts, **{field: 1 + getattr(model.experts, field)})
            assert not adds_up(replace(model, experts=wrong)), field
    if name not in ROUNDED:
        assert not adds_up(replace(model, bias=True))
        assert not adds_up(replace(model, qk_norm=not model.qk_norm)) or model.latent


def test_the_figures_are_those_that_transformers_begins_with() -> None:
    """Three of its configurations are a released model, where nothing else is asked for."""
    transformers = pytest.importorskip("transformers")
    names = {"hidden": "hidden_size", "vocab": "vocab_size", "layers": "num_hidden_layers"}
    names |= {"heads": "num_attention_heads", "tied": "tie_word_embeddings"}
    more = {"intermediate": "intermediate_size", "kv_heads": "num_key_value_heads"}
    for model, kind, fields in (
        ("gemma-7b", transformers.GemmaConfig, {**names, **more, "head_dim": "head_dim"}),
        ("falcon-7b", transformers.FalconConfig, {**names, "intermediate": "ffn_hidden_size"}),
        ("deepseek-v3", transformers.DeepseekV3Config, {**names, **more, "head_dim": "v_head_dim"}),
    ):
        config = kind()
        for ours, theirs in fields.items():
            assert getattr(MODELS[model], ours) == getattr(config, theirs), (model, ours)
    latent, experts = MODELS["deepseek-v3"].latent, MODELS["deepseek-v3"].experts
    assert latent == Latent(config.q_lora_rank, config.kv_lora_rank, config.qk_rope_head_dim)
    assert experts == Experts(
        config.n_routed_experts,
        config.num_experts_per_tok,
        config.moe_intermediate_size,
        config.n_shared_experts,
        config.first_k_dense_replace,
    )


def test_models_are_asked_for_by_name_or_given() -> None:
    own = replace(MODELS["llama-3-8b"], name="own", hidden=2048)
    assert chosen("all") == tuple(MODELS.values())
    assert chosen("qwen3-8b") == chosen(["qwen3-8b"]) == (MODELS["qwen3-8b"],)
    assert chosen(("gpt-3", own)) == (MODELS["gpt-3"], own) and chosen(own) == (own,)
    assert chosen(()) == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("llama-3-7b", "no model 'llama-3-7b' .did you mean 'llama-3-70b'"),
        (["qwen3-8b", "x"], "no model 'x' .there are: deepseek-v3"),
        ([3], "no model 3"),
        (["all"], "no model 'all' .*deepseek-v3"),
        ({"qwen3-8b"}, "give names of models, or 'all'"),
        (None, "give names of models, or 'all'"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(given: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        chosen(given)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1
