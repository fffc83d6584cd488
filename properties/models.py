"""The layers equal the plain ones at the sizes of released models, scaled down."""

from dataclasses import replace

from properties import (
    attention,
    block,
    embedding,
    fused,
    language_model,
    linear,
    mlp,
    tied_embedding,
)
from tpcheck import specs

column_models = replace(linear.column_linear, spec=specs.column_linear(models="all"))
row_models = replace(linear.row_linear, spec=specs.row_linear(models="all"))
all_gather_models = replace(fused.all_gather_linear, spec=specs.all_gather_linear(models="all"))
reduce_scatter_models = replace(
    fused.linear_reduce_scatter, spec=specs.linear_reduce_scatter(models="all")
)
embedding_models = replace(embedding.embedding, spec=specs.embedding(models="all"))
mlp_models = replace(mlp.mlp, spec=specs.mlp(models="all"))
attention_models = replace(attention.attention, spec=specs.attention(models="all"))
block_models = replace(block.block, spec=specs.block(models="all"))
block_sp_models = replace(block.block_sp, spec=specs.block(sequence_parallel=True, models="all"))
tied_models = replace(tied_embedding.tied_embedding, spec=specs.tied_embedding(models="all"))
language_models = replace(
    language_model.language_model, spec=specs.language_model(layers=(1,), models="all")
)
