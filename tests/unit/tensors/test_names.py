"""Names: what wraps a module leaves the reference's names as they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tpcheck.errors import InvalidArgument
from tpcheck.tensors.names import InPass, Pass, check_names, parameters_of, tensors_of, unwrapped


class Model(nn.Module):
    """Two layers and a buffer; the first weight is tied to the second."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        self.layers[1].weight = self.layers[0].weight
        self.register_buffer("scale", torch.ones(2))


def test_wrappers_disappear_from_names() -> None:
    model = Model()
    for name, plain in {
        "_orig_mod.layers.0._checkpoint_wrapped_module.weight": "layers.0.weight",
        "_fsdp_wrapped_module.weight": "weight",
        "layers.original.weight": "layers.original.weight",
    }.items():
        assert unwrapped(name, model) == plain


class DistributedDataParallel(nn.Module):
    """torch's, Megatron-core's and apex's have the user's module under this name."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class Own(nn.Module):
    """A module of the user's own with a `module`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class Replicas(DistributedDataParallel):
    """A class of such a class."""


def test_what_ddp_wraps_has_the_names_of_the_plain_one() -> None:
    plain = tensors_of(Model()).keys()
    for kind in (DistributedDataParallel, Replicas):
        assert tensors_of(kind(Model())).keys() == plain
        assert tensors_of(kind(kind(Model()))).keys() == plain
        assert tensors_of(nn.Sequential(kind(Model()))).keys() == {f"0.{name}" for name in plain}


def test_a_module_of_ones_own_by_that_name_is_a_level() -> None:
    within = {f"module.{name}" for name in tensors_of(Model())}
    assert tensors_of(Own(Model())).keys() == within
    assert tensors_of(DistributedDataParallel(Own(Model()))).keys() == within
    assert tensors_of(Own(DistributedDataParallel(Model()))).keys() == within
    assert unwrapped("module.layers.0.weight", Own(Model())) == "module.layers.0.weight"
    assert unwrapped("gone.module.weight", Model()) == "gone.module.weight"


def test_a_wrapped_module_has_the_names_of_the_plain_one() -> None:
    plain, wrapped = Model(), Model()
    wrapped.layers[0] = checkpoint_wrapper(wrapped.layers[0])
    assert dict(wrapped.named_parameters()).keys() != dict(plain.named_parameters()).keys()
    assert parameters_of(wrapped).keys() == parameters_of(plain).keys()
    assert tensors_of(wrapped).keys() == tensors_of(plain).keys()
    assert {"scale", "layers.1.weight"} <= tensors_of(wrapped).keys()  # tied, under both names
    assert {"layers.0.weight", "layers.1.weight"} <= parameters_of(wrapped).keys()
    assert "scale" not in parameters_of(wrapped)


@pytest.mark.parametrize("name", ["x@1", "x@12", "x@step", "w.b@2", "x@step2", "x@step2.1"])
def test_a_name_that_reads_as_another_pass_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"the input '{name}' ends as tpcheck writes"):
        check_names("input", ["x", name])


@pytest.mark.parametrize("name", ["x", "x@", "x@0", "x@02", "a@b", "x@steps", "a/b", "a|b"])
@pytest.mark.parametrize("end", ["", "@step1", "@step02", "@step2.0", "@step2."])
def test_other_names_are_not(name: str, end: str) -> None:
    check_names("input", [name + end])
    assert str(InPass.parse(name + end)) == name + end


PASSES = [Pass(), Pass(1), Pass(None), Pass(0, 1), Pass(2, 1), Pass(0, 19)]


@pytest.mark.parametrize("at", PASSES, ids=lambda at: at.suffix)
def test_a_name_in_a_pass_is_read_as_it_was_written(at: Pass) -> None:
    for base in ("x", "a.b", "a@b"):
        assert InPass.parse(str(InPass(base, at))) == InPass(base, at)


def test_passes_come_in_the_order_in_which_they_run() -> None:
    assert sorted([*PASSES[::-1], Pass(1, 2)]) == [*PASSES[:5], Pass(1, 2), PASSES[5]]
    assert [at.suffix for at in PASSES] == ["", "@1", "@step", "@step2", "@step2.2", "@step20"]
