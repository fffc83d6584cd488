"""Megatron-core's references: the driver is left as it was."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch
import torch.distributed as dist

from tests.fake_ranks import fake_ranks
from tpcheck import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import pose

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

from fixtures.frameworks import megatron_modules as modules

CASE = Case(
    dims={"batch": 1, "seq": 2, "hidden": 3, "ffn": 4, "gated": True, "bias": True}, mesh={"tp": 2}
)


def test_the_driver_is_left_as_it_was() -> None:
    hook, device = sys.excepthook, torch.cuda.current_device
    posed = pose(modules.mlp_spec(False), CASE)
    assert posed.problems[0].targets
    from megatron.core import parallel_state

    assert not dist.is_initialized() and not parallel_state.is_initialized()
    assert (sys.excepthook, torch.cuda.current_device) == (hook, device)


def test_a_driver_in_a_process_group_is_refused_in_one_line() -> None:
    with fake_ranks(2), pytest.raises(InvalidArgument, match="init_process_group already"):
        pose(modules.mlp_spec(False), CASE)
