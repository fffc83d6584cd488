"""Megatron-core's layers and a small GPT: sequence parallelism off and on (`_sp`)."""

from functools import partial

from fixtures.frameworks import megatron_findings as findings
from fixtures.frameworks import megatron_layers as layers
from fixtures.frameworks import megatron_modules as modules
from tpcheck import Check
from tpcheck.adapters.megatron import candidate

megatron_column = Check(layers.column_spec(False), candidate(layers.column), processes=True)
megatron_column_sp = Check(
    layers.column_spec(True), candidate(partial(layers.column, sp=True)), processes=True
)
megatron_row = Check(layers.row_spec(False), candidate(layers.row), processes=True)
megatron_row_sp = Check(
    layers.row_spec(True), candidate(partial(layers.row, sp=True)), processes=True
)
megatron_embedding = Check(
    layers.embedding_spec(False), candidate(layers.embedding), processes=True
)
megatron_embedding_sp = Check(
    layers.embedding_spec(True), candidate(partial(layers.embedding, sp=True)), processes=True
)
megatron_reduce = Check(
    layers.reduced_spec(),
    candidate(layers.reduced),
    processes=True,
    known=[findings.lost_all_reduce],
)
megatron_cross_entropy = Check(
    layers.cross_entropy_spec(0.0),
    candidate(layers.cross_entropy),
    processes=True,
    known=[findings.logits_in_place, findings.logits_overwritten],
)
megatron_cross_entropy_smoothed = Check(
    layers.cross_entropy_spec(layers.SMOOTHING),
    candidate(layers.cross_entropy),
    processes=True,
    overrides={"overwrites": ("logits",)},  # as without smoothing
    known=[findings.smoothed_in_place, *findings.smoothing_by_partition],
)
megatron_attention = Check(
    modules.attention_spec(False), candidate(modules.attention), processes=True
)
megatron_attention_sp = Check(
    modules.attention_spec(True), candidate(partial(modules.attention, sp=True)), processes=True
)
megatron_mlp = Check(modules.mlp_spec(False), candidate(modules.mlp), processes=True)
megatron_mlp_sp = Check(
    modules.mlp_spec(True), candidate(partial(modules.mlp, sp=True)), processes=True
)
megatron_gpt = Check(modules.gpt_spec(False), candidate(modules.gpt), processes=True)
megatron_gpt_sp = Check(
    modules.gpt_spec(True), candidate(partial(modules.gpt, sp=True)), processes=True
)
