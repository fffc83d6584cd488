"""What ranks of one TP degree save, ranks of the same or of another load, to the bit; and where
they have saved after a step of training, these go on with it."""

from dataclasses import replace

from fixtures.parallel.checkpoint import Checkpoint, TrainingCheckpoint
from fixtures.parallel.zero import data_parallel
from properties import attention, block, linear, mlp
from properties.training import adamw, halved, momentum, trained
from tpcheck import Check, Norm, Training


def _saved(check: Check) -> Check:
    files = Checkpoint()
    return replace(check, save=files.save, load=files.load)


column_linear_saved = _saved(linear.column_linear_transposed)
row_linear_saved = _saved(linear.row_linear)
mlp_saved = _saved(mlp.mlp)
attention_saved = _saved(attention.attention)
stack_sp_saved = _saved(block.stack_sp)


def _resumed(check: Check) -> Check:
    files = TrainingCheckpoint()
    return replace(check, save=files.save, load=files.load, resumes=True)


mlp_resumed = _resumed(
    trained(
        replace(mlp.mlp, spec=data_parallel(mlp.mlp.spec)),
        Training(adamw, steps=2, schedule=halved),
        Norm(),
    )
)
mlp_sp_resumed = _resumed(trained(mlp.mlp_sp, Training(momentum, steps=2)))
attention_resumed = _resumed(trained(attention.attention, Training(adamw, steps=2)))
