"""Layers of DeepSpeed's AutoTP: it marks their parameters as sharded, and does not say how."""

from dataclasses import replace

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from fixtures.released.deepspeed import training
from tpcheck import Case, Check, Spec, specs


def _needs(spec: Spec) -> Spec:
    return replace(spec, preload=("deepspeed",))


def _linear(case: Case) -> nn.Module:
    sizes = case["in_features"], case["out_features"]
    return nn.Linear(*sizes, bias=case["bias"], dtype=getattr(torch, case.dtype))


def _column(case: Case, mesh: DeviceMesh) -> nn.Module:
    module: nn.Module = training().LinearLayer(_linear(case), mesh["tp"].get_group())
    return module


def _row(case: Case, mesh: DeviceMesh) -> nn.Module:
    module: nn.Module = training().LinearAllreduce(_linear(case), mesh["tp"].get_group())
    return module


autotp_column = Check(_needs(specs.column_linear(even=True)), candidate=_column, processes=True)
autotp_row = Check(_needs(specs.row_linear(even=True)), candidate=_row, processes=True)
