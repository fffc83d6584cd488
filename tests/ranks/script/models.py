"""A user's file: models, each wrong until FIXED is true, and their checks."""

MODELS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module
from torch.distributed.tensor import Replicate, Shard as Split

import tpcheck
from tpcheck import Layout, Partial, Shard, specs

FIXED = False


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy, None


class Row(nn.Module):
    def __init__(self, case, group):
        super().__init__()
        rows = case["in_features"] // group.size()
        self.group = group
        self.weight = nn.Parameter(torch.empty(case["out_features"], rows))
        self.bias = nn.Parameter(torch.empty(case["out_features"])) if case["bias"] else None

    def forward(self, x):
        y = x @ self.weight.T
        y = Reduce.apply(y, self.group) if FIXED else y
        return y if self.bias is None else y + self.bias


def build(case, mesh):
    return Row(case, mesh["tp"].get_group())


def fill(module, full):
    rank, size = dist.get_rank(module.group), module.group.size()
    module.weight.copy_(full["weight"].chunk(size, 1)[rank])
    if module.bias is not None:
        module.bias.copy_(full["bias"])


class Linear(nn.Linear):
    def forward(self, x):
        return super().forward(x) if FIXED else super().forward(x) * 1.5


def dtensors(case, mesh):
    model = Linear(case["in_features"], case["out_features"], bias=case["bias"])
    return parallelize_module(model, mesh["tp"], RowwiseParallel(input_layouts=Split(-1)))


class Noisy(Row):
    def forward(self, x):
        y = Reduce.apply(x @ self.weight.T, self.group)
        y = y if self.bias is None else y + self.bias
        last = dist.get_rank(self.group) == self.group.size() - 1
        return y.nextafter(torch.full_like(y, 9)) if last and not FIXED else y


def noisy(case, mesh):
    return Noisy(case, mesh["tp"].get_group())


row = tpcheck.Check(specs.row_linear(even=True), build)
loaded = tpcheck.Check(specs.row_linear(even=True), candidate=build, load=fill)
replicas = tpcheck.Check(specs.row_linear(even=True), candidate=noisy)
planned = tpcheck.Check(specs.row_linear(even=True), candidate=dtensors)
"""
