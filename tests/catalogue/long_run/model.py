"""The model, right; and what says of a wrong one at which step it becomes so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fixtures.parallel.dropout import DroppingLanguageModel, dropping
from properties.training import adamw
from tpcheck import Case, Norm, Training, specs
from tpcheck.spec import Spec
from tpcheck.specs.block import block_dims

if TYPE_CHECKING:
    from tpcheck.check import Candidate

#: One model of two layers, whose ranks have several heads and columns each at tp=4.
DIMS = {
    "layers": 2,
    "batch": 2,
    "seq": 8,
    "hidden": 16,
    "heads": 8,
    "kv_heads": 4,
    "head_dim": 4,
    "intermediate": 32,
    "activation": "gelu",
    "norm": "layer",
    "bias": True,
    "vocab": 35,
    "tied": True,
    "ignored": True,
    "qk_norm": False,
    "rotary": True,
    "causal": True,
    "dropout": 0.1,
}
DEGREES = (2, 4)
DTYPES = ("float32", "bfloat16")


def cosine(optimizer: Any) -> Any:
    """The rate falls to nothing over the run."""
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)


def spec(cases: Sequence[Case], steps: int, *, sequence_parallel: bool, order: float = 2.0) -> Spec:
    """What every run must satisfy: AdamW with weight decay of matrices, a schedule, clipping, and
    float32 main parameters of bfloat16 ones."""
    of = specs.language_model(sequence_parallel=sequence_parallel, dropout=(DIMS["dropout"],))
    training = Training(adamw, steps=steps, schedule=cosine, main=torch.float32)
    norm = Norm(order, most=(0.5,))
    return replace(of, cases=cases, training=training, norm=norm, budget=None)


def case_of(tp: int, dtype: str, seed: int) -> Case:
    """A run of one microbatch per step."""
    return Case(dims=DIMS, dtype=dtype, mesh={"tp": tp}, seed=seed)


class Clock:
    """Counts the steps of a candidate; what is wrong with it begins at one of them.

    Args:
        begins: the number of that one, from 0.
    """

    def __init__(self, begins: int) -> None:
        self.begins, self.step = begins, -1

    def count(self, *_: Any) -> None:
        """A forward begins: there is one per step."""
        self.step += 1

    @property
    def struck(self) -> bool:
        return self.step >= self.begins


def candidate(
    begins: int,
    model: type[DroppingLanguageModel] = DroppingLanguageModel,
    *,
    sequence_parallel: bool,
) -> Candidate:
    """`build(case, mesh)` of a model, every part of which has the one `clock`."""

    def build(case: Case, mesh: Any) -> nn.Module:
        group = mesh["tp"].get_group()
        dims: dict[str, Any] = dict(block_dims(case))
        rate = dims.pop("dropout")
        sizes = case["vocab"], case["layers"]
        clock = Clock(begins)
        with torch.random.fork_rng(devices=[]):  # ranks draw different numbers to build it
            module = model(
                *sizes,
                tied=case["tied"],
                group=group,
                sequence_parallel=sequence_parallel,
                **dims,
            )
        for part in module.modules():
            part.clock = clock
        module.register_forward_pre_hook(clock.count)
        return dropping(module, rate, group, mesh.device_type)

    return build
