"""What ranks of one TP degree save, ranks of the same or of another load, to the bit."""

from dataclasses import replace

from fixtures.parallel.checkpoint import Checkpoint
from properties import attention, block, linear, mlp
from tpcheck import Check


def _saved(check: Check) -> Check:
    files = Checkpoint()
    return replace(check, save=files.save, load=files.load)


column_linear_saved = _saved(linear.column_linear_transposed)
row_linear_saved = _saved(linear.row_linear)
mlp_saved = _saved(mlp.mlp)
attention_saved = _saved(attention.attention)
stack_sp_saved = _saved(block.stack_sp)
