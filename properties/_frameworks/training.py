"""A whole language model, with dropout and main parameters, too, DTensors and pipeline stages,
trained: seconds per case."""

from typing import Any

import torch
from torch import nn

from fixtures.parallel.dropout import DroppingLanguageModel, dropping
from properties._frameworks.compositions import tp_pipeline
from properties._frameworks.dtensor import dtensor_mlp_norm
from properties.language_model import language_model, language_model_sp
from properties.training import adamw, halved, trained
from tpcheck import Case, Check, Norm, Training, specs
from tpcheck.specs.block import block_dims


def _dropping(**options: Any) -> Any:
    def build(case: Case, mesh: Any) -> nn.Module:
        group = mesh["tp"].get_group()
        dims: dict[str, Any] = dict(block_dims(case))
        rate = dims.pop("dropout")
        sizes = case["vocab"], case["layers"]
        # parameters of unlike sizes take unlike numbers from the generator that all ranks share
        with torch.random.fork_rng(devices=[]):
            module = DroppingLanguageModel(
                *sizes, tied=case["tied"], group=group, **dims, **options
            )
        return dropping(module, rate, group, mesh.device_type)

    return build


def _mixed(steps: int, *, sequence_parallel: bool) -> Check:
    """Dropout, clipping and float32 main parameters, in that many steps."""
    spec = specs.language_model(sequence_parallel=sequence_parallel, dropout=(0.1,))
    check = Check(spec, candidate=_dropping(sequence_parallel=sequence_parallel), processes=True)
    return trained(check, Training(adamw, steps, schedule=halved, main=torch.float32), Norm())


language_model_adamw = trained(language_model, Training(adamw, steps=3, schedule=halved), Norm())
language_model_sp_adamw = trained(language_model_sp, Training(adamw), Norm())
dtensor_mlp_adamw = trained(dtensor_mlp_norm, Training(adamw))
tp_pipeline_adamw = trained(tp_pipeline, Training(adamw))
language_model_mixed = _mixed(3, sequence_parallel=False)
language_model_sp_mixed = _mixed(2, sequence_parallel=True)
