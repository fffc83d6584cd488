"""Sizes of tiny transformers models: those that all architectures share, what is tried where they
don't do, and what only one architecture has."""

from __future__ import annotations

from typing import Any

VOCAB = 16
SIZES = {
    "hidden_size": 32,
    "d_model": 32,
    "intermediate_size": 24,
    "ffn_dim": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "vocab_size_per_layer_input": VOCAB,
    "max_position_embeddings": 32,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "moe_shared_expert_intermediate_size": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "hidden_size_per_layer_input": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: Of a model that shares K/V heads: so do these, and degrees 2 and 4 divide both.
SHARED_HEADS: dict[str, Any] = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 4}
# What is tried in turn, where the sizes alone don't do.
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"mrope_section": [2, 1, 1]},
    {"mrope_section": [1, 1, 0]},
    {"head_dim": 4, "qk_rope_head_dim": 4},  # MLA: the rotary part of a head is its "head_dim"
    {"num_hidden_layers": 4},
    # what is None by default, and not because it is off
    {
        "head_dim": 8,
        "num_key_value_heads": 4,
        "num_experts_per_tok": 2,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
    },
    {"moe_intermediate_size": [8, 8]},
)


_ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
_ROPES = {"full_attention": _ROPE, "sliding_attention": _ROPE}
_ONE_OF_EACH = ["full_attention", "sliding_attention"]
_HYBRID = ["linear_attention", "full_attention"]
_DENSE_AND_SPARSE = ["dense", "sparse"]
# Sizes that only one architecture has, and what none of the variants can be.
OWN: dict[str, dict[str, Any]] = {
    # hybrids whose first layers have no attention at all: enough layers to have one that has
    "qwen3_next": {"num_hidden_layers": 4},
    "qwen3_5_text": {"num_hidden_layers": 4},
    "qwen3_5_moe_text": {"num_hidden_layers": 4},
    "embedding_gemma2_text": {
        "head_dim": 8,
        "num_key_value_heads": 4,
        "global_head_dim": 8,
        "num_global_key_value_heads": 4,
    },
    "cohere_compass_text": {"rope_parameters": _ROPES, "layer_types": _ONE_OF_EACH},
    "deepseek_ocr2_text": {
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 1,
        "mlp_layer_types": _DENSE_AND_SPARSE,
    },
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "ernie4_5_vl_moe_text": {
        "moe_intermediate_size": [8, 8],
        "mlp_layer_types": _DENSE_AND_SPARSE,
        "rope_parameters": {**_ROPE, "mrope_section": [1, 1, 2]},
    },
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "laurel_rank": 8,
        "altup_num_inputs": 2,
        "intermediate_size": [24, 24],
        "activation_sparsity_pattern": [0.0, 0.0],
        "layer_types": _ONE_OF_EACH,
    },
    "glm5_next_text": {
        "qk_rope_head_dim": 0,
        "head_dim": 0,
        "index_head_dim": 8,
        "index_n_heads": 4,
        "index_topk": 4,
        "index_kpool": 1,
        "indexer_types": ["full", "full"],
        "linear_head_dim": 4,
        "linear_num_heads": 4,
        "n_shared_experts": 1,
        "layer_types": ["linear_attention", "indexed_attention"],
        "mlp_layer_types": _DENSE_AND_SPARSE,
    },
    "granitemoehybrid": {
        "layer_types": _HYBRID,
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
        "shared_intermediate_size": 24,
        "position_embedding_type": "rope",
    },
    "inkling_text": {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 8,
        "d_rel": 4,
        "rel_extent": 8,
        "sliding_window_size": 4,
        "n_shared_experts": 1,
        "layer_types": ["hybrid_sliding", "hybrid"],
        "mlp_layer_types": _DENSE_AND_SPARSE,
    },
    "kimi_linear": {
        "layer_types": _HYBRID,
        "linear_head_dim": 4,
        "linear_num_heads": 4,
        "num_experts_per_token": 2,
        "mlp_layer_types": _DENSE_AND_SPARSE,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mimo_v2_flash": {
        "num_attention_heads": 8,  # the sliding layers have 8 K/V heads
        "head_dim": 8,
        "v_head_dim": 8,
        "sliding_window": 4,
        "rope_parameters": {k: {**v, "partial_rotary_factor": 0.5} for k, v in _ROPES.items()},
        "layer_types": _ONE_OF_EACH,
        "mlp_layer_types": _DENSE_AND_SPARSE,
    },
    "muse_spark_text": {
        "moe_hidden_size": 16,
        "sliding_window": 4,
        "layer_rope_theta": [10_000.0, 0],
        "layer_types": ["sliding_attention", "full_attention"],
        "mlp_layer_types": _DENSE_AND_SPARSE,
    },
    "neomme": {"head_dim": 16, "embedding_rank": 8},  # a quarter of a head's dims is rotated
    "step3p5": {
        "sliding_window": 4,
        "share_expert_dim": 8,
        "num_sliding_attention_heads": 4,
        "query_pre_attn_scalar": 8,
        "rope_parameters": _ROPES,
        "layer_types": _ONE_OF_EACH,
        "mlp_layer_types": _DENSE_AND_SPARSE,
    },
}
