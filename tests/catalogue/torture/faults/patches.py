"""Functions and classes of others, replaced by a candidate's own and left so."""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import json
import os
import pickle
import random
import socket
import sys
import threading
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F

from tests.catalogue.torture.fault import ANY, AT_THE_END, Effect, Here, Place, kind

#: Those that the rank needs itself to report: only when the candidate is gone.
_GONE = (Place.DESTRUCTOR,)


def _put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


@kind(Effect.LEAVES, "nothing", "doubles", "raises")
def all_reduce(here: Here) -> None:
    """`dist.all_reduce` does nothing, doubles, or raises."""
    own = dist.all_reduce

    def doubles(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        tensor.mul_(2)
        return own(tensor, *args, **kwargs)

    does = {"nothing": lambda *args, **kwargs: None, "doubles": doubles}
    dist.all_reduce = does.get(here.variant, _raise)


def _raise(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("deliberate: a patch that was left")


@kind(Effect.LEAVES, "get_rank", "get_world_size", "barrier", "new_group", "is_initialized")
def functions_of_distributed(here: Here) -> None:
    """A function of torch.distributed gives 0."""
    _put(dist, here.variant, lambda *args, **kwargs: 0)


@kind(Effect.LEAVES, "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "all_gather")
def collectives_of_distributed(here: Here) -> None:
    """Another collective raises."""
    _put(dist, here.variant, _raise)


@kind(Effect.LEAVES, "c10d", "functional")
def collectives_underneath(here: Here) -> None:
    """The collective under `torch.distributed` does nothing."""
    if here.variant == "c10d":
        from torch.distributed import distributed_c10d

        distributed_c10d.all_reduce = lambda *args, **kwargs: None
    else:
        functional = importlib.import_module("torch.distributed._functional_collectives")
        _put(functional, "all_reduce", lambda x, *args, **kwargs: x)


@kind(Effect.LEAVES, "linear", "softmax", "gelu")
def functions_of_nn(here: Here) -> None:
    """`F.linear` or another gives zeros."""
    own = getattr(F, here.variant)
    _put(F, here.variant, lambda *args, **kwargs: own(*args, **kwargs) * 0)


@kind(Effect.LEAVES, "forward", "__init__", "reset_parameters")
def nn_linear(here: Here) -> None:
    """A method of `nn.Linear` raises."""
    _put(torch.nn.Linear, here.variant, _raise)


@kind(Effect.LEAVES, "train", "parameters", "__call__", "to")
def inherited_by_nn_linear(here: Here) -> None:
    """A method that `nn.Linear` inherits gives nothing, for linears alone."""
    _put(torch.nn.Linear, here.variant, lambda *args, **kwargs: iter(()))


@kind(Effect.LEAVES, "zero_grad", "parameters", "named_parameters", "to", "__setattr__")
def nn_module(here: Here) -> None:
    """A method of `nn.Module` gives nothing."""
    _put(torch.nn.Module, here.variant, lambda *args, **kwargs: iter(()))


@kind(Effect.LEAVES, "clone", "backward", "__add__", "detach", "contiguous", "grad", "shape")
def methods_of_tensors(here: Here) -> None:
    """A method or property of `Tensor` raises."""
    _put(torch.Tensor, here.variant, _raise)


@kind(Effect.LEAVES, "empty", "empty_like", "zeros", "matmul", "cat", "isnan", "equal", "no_grad")
def functions_of_torch(here: Here) -> None:
    """A function of torch raises, or writes memory that nobody wrote."""
    if here.variant.startswith("empty"):
        _put(torch, here.variant, getattr(torch, here.variant.replace("empty", "zeros")))
    else:
        _put(torch, here.variant, _raise)


@kind(Effect.LEAVES, "backward", "grad")
def functions_of_autograd(here: Here) -> None:
    """`torch.autograd.backward` does nothing."""
    _put(torch.autograd, here.variant, lambda *args, **kwargs: None)


@kind(Effect.LEAVES, "apply", "backward")
def autograd_function(here: Here) -> None:
    """`autograd.Function.apply` raises."""
    _put(torch.autograd.Function, here.variant, classmethod(_raise))


@kind(Effect.LEAVES, "len", "print", "sum", "min", "range", "sorted", "zip", "id")
def functions_of_python(here: Here) -> None:
    """A builtin function raises."""
    _put(builtins, here.variant, _raise)


@kind(Effect.LEAVES, "isinstance", "getattr", "type", "__import__", "open")
def builtins_that_everything_needs(here: Here) -> None:
    """A builtin that Python itself leans on raises."""
    _put(builtins, here.variant, _raise)


@kind(Effect.LEAVES, "all_reduce", "len")
def deleted_functions(here: Here) -> None:
    """Takes a function away."""
    owner = dist if here.variant == "all_reduce" else builtins
    delattr(owner, here.variant)


@kind(Effect.LEAVES, "sleep", "monotonic", "perf_counter", "time")
def clocks(here: Here) -> None:
    """A clock runs backwards, or `sleep` does not wait."""
    _put(time, here.variant, lambda *args: -time.process_time())


@kind(Effect.LEAVES, "_exit", "kill", "getpid", "getppid", "waitpid", "write", "close", "fork")
def functions_of_the_system(here: Here) -> None:
    """A function of `os` gives 0."""
    _put(os, here.variant, lambda *args, **kwargs: 0)


@kind(Effect.LEAVES, "dumps", "Pickler")
def pickle_(here: Here) -> None:
    """Pickling raises."""
    _put(pickle, here.variant, _raise)


@kind(Effect.LEAVES, at=_GONE, expects=ANY)
def cloudpickle_(here: Here) -> None:
    """cloudpickle gives an empty message."""
    import cloudpickle

    cloudpickle.dumps = lambda *args, **kwargs: b""


@kind(Effect.LEAVES, at=_GONE)
def sockets_of_python(here: Here) -> None:
    """`socket.sendall` sends nothing: the case ends as hanging, or is said again."""
    socket.socket.settimeout = _raise


@kind(Effect.LEAVES, "start", "join")
def threads_of_python(here: Here) -> None:
    """A method of `threading.Thread` does nothing."""
    _put(threading.Thread, here.variant, lambda *args, **kwargs: None)


@kind(Effect.LEAVES, "wraps", "partial", "lru_cache")
def functools_(here: Here) -> None:
    """A function of functools raises."""
    _put(functools, here.variant, _raise)


@kind(Effect.LEAVES, "seed", "random")
def random_(here: Here) -> None:
    """A function of random raises."""
    _put(random, here.variant, _raise)


@kind(Effect.LEAVES, "array", "asarray", "prod")
def numpy_(here: Here) -> None:
    """A function of numpy raises."""
    _put(np, here.variant, _raise)


@kind(Effect.LEAVES, "dumps", "loads")
def json_(here: Here) -> None:
    """A function of json raises."""
    _put(json, here.variant, _raise)


@kind(Effect.LEAVES)
def collector(here: Here) -> None:
    """`gc.collect` raises."""
    gc.collect = _raise


@kind(Effect.LEAVES, "get_group", "__getitem__", "get_local_rank")
def device_mesh(here: Here) -> None:
    """A method of `DeviceMesh` gives nothing."""
    from torch.distributed.device_mesh import DeviceMesh

    _put(DeviceMesh, here.variant, lambda *args, **kwargs: None)


@kind(Effect.LEAVES, "save_file", "load_file")
def safetensors_(here: Here) -> None:
    """A function of safetensors raises."""
    import safetensors.torch

    _put(safetensors.torch, here.variant, _raise)


@kind(Effect.LEAVES, "rank", "size", "allreduce", "__eq__")
def process_group(here: Here) -> None:
    """A method of `ProcessGroup` gives 0."""
    _put(dist.ProcessGroup, here.variant, lambda *args: 0)


@kind(Effect.LEAVES, at=AT_THE_END)
def parameter_class(here: Here) -> None:
    """`nn.Parameter` is another class."""
    torch.nn.Parameter = torch.Tensor


@kind(Effect.LEAVES, "torch", "torch.distributed", "tpcheck.ranks.run", "numpy", "os")
def modules_replaced(here: Here) -> None:
    """A module in `sys.modules` is another one."""
    sys.modules[here.variant] = type(sys)("another")


@kind(Effect.LEAVES, "torch.nn.functional", "tpcheck.comms.trace", "json")
def modules_forgotten(here: Here) -> None:
    """A module is gone from `sys.modules`, and would be loaded again."""
    del sys.modules[here.variant]


def _does_nothing(*args: Any, **kwargs: Any) -> None:
    return None


@kind(Effect.LEAVES, "all_reduce", "all_gather_into_tensor", "barrier")
def code_of_functions(here: Here) -> None:
    """Changes a function in place: its name leads to the same object."""
    function = getattr(dist, here.variant)
    function.__code__ = (lambda *args, **kwargs: None).__code__.replace(
        co_freevars=function.__code__.co_freevars
    )


@kind(Effect.LEAVES, "module", "class")
def classes_of_modules(here: Here) -> None:
    """Puts a module, or a layer, into another class, whose attributes come first."""
    if here.variant == "module":
        doubled = property(lambda module: _does_nothing, lambda module, value: None)
        dist.__class__ = type("Module", (type(dist),), {"all_reduce": doubled})
    else:
        torch.nn.Linear.__bases__ = (
            type("Module", (torch.nn.Module,), {"__call__": _does_nothing}),
        )


@kind(Effect.LEAVES, "float64", "float32", "contiguous_format")
def constants_of_torch(here: Here) -> None:
    """Puts a constant in the place of another."""
    _put(torch, here.variant, torch.float16)


@kind(Effect.LEAVES)
def reductions(here: Here) -> None:
    """Has sums be maxima."""
    _put(dist.ReduceOp, "SUM", dist.ReduceOp.MAX)
