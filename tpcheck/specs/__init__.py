"""Ready specs: what each tensor-parallel layer must satisfy, whoever wrote it.

    column = tpcheck.Check(specs.column_linear(), candidate=build)

Each function returns a `Spec`; its docstring names the dims that `case[...]` has, and the layout.
`Check(…, overrides={"dims": {"hidden": [8, 64]}})` narrows or widens what is drawn of them.
Letters: B batch, S sequence, H hidden, I intermediate, V vocabulary, K in, N out, R degree.
"""

from tpcheck.specs.attention import attention
from tpcheck.specs.block import block, stack
from tpcheck.specs.cross_entropy import cross_entropy
from tpcheck.specs.embedding import embedding
from tpcheck.specs.float8 import float8_column_linear, float8_row_linear
from tpcheck.specs.fused import all_gather_linear, linear_reduce_scatter
from tpcheck.specs.head import head
from tpcheck.specs.language_model import language_model
from tpcheck.specs.linear import column_linear, row_linear
from tpcheck.specs.linear_cross_entropy import linear_cross_entropy
from tpcheck.specs.lora import lora_column_linear, lora_row_linear
from tpcheck.specs.mlp import mlp
from tpcheck.specs.model import causal_lm
from tpcheck.specs.tied import tied_embedding

__all__ = [
    "all_gather_linear",
    "attention",
    "block",
    "causal_lm",
    "column_linear",
    "cross_entropy",
    "embedding",
    "float8_column_linear",
    "float8_row_linear",
    "head",
    "language_model",
    "linear_cross_entropy",
    "linear_reduce_scatter",
    "lora_column_linear",
    "lora_row_linear",
    "mlp",
    "row_linear",
    "stack",
    "tied_embedding",
]
