"""The split linears of a model, by the module that they work in together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from tpcheck.plan.followed import Promise
from tpcheck.plan.match import join
from tpcheck.plan.styles import Style


@dataclass
class Group:
    """The split linears that belong to one module: its children, or alone in a child of it."""

    parent: str
    gives: list[str] = field(default_factory=list)  # column splits whose output stays sharded
    takes: list[str] = field(default_factory=list)  # row splits that take a sharded input
    linears: list[str] = field(default_factory=list)  # all of them, split or not


def groups_of(promise: Promise) -> list[Group]:
    """The groups with a split by features, in the order of the model."""
    groups: dict[str, Group] = {}
    every = [name for name in promise.tree.modules if is_linear(promise, name)]
    below = Counter(path for name in every for path in _above(name))

    def parent_of(name: str) -> str:
        return next((path for path in _above(name) if below[path] > 1), "")

    for name, style in _linears(promise):
        group = groups.setdefault(parent_of(name), Group(parent_of(name)))
        if style.split == "column" and style.gives == "features":
            group.gives.append(name)
        if style.split == "row" and style.takes == "features":
            group.takes.append(name)
    for name in every:
        if parent_of(name) in groups and not isinstance(promise.tree.modules[name], nn.Embedding):
            groups[parent_of(name)].linears.append(name)
    return [group for group in groups.values() if group.gives or group.takes]


def _linears(promise: Promise) -> Iterator[tuple[str, Style]]:
    """Split linears in the order of the model, each with the style that splits it."""
    for name, module in promise.tree.modules.items():
        if not is_linear(promise, name) or isinstance(module, nn.Embedding):
            continue  # it can't be split so, which is said elsewhere
        for _, style in promise.on.get(name, ()):
            if style.split in ("column", "row"):
                yield name, style


def _above(name: str) -> Iterator[str]:
    """The modules above one, from its parent to the root."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def block_of(name: str) -> str:
    """The repeated block that a module is in: its path up to the first number; "" for none."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""


def is_below(name: str, parent: str) -> bool:
    """Whether a module is another one, or within it; nothing counts as within the root."""
    return bool(parent) and (name == parent or name.startswith(f"{parent}."))


def is_linear(promise: Promise, module: str) -> bool:
    """Whether it has a matrix: containers, activations, norms and convolutions have none."""
    weight = promise.tree.modules[module]._parameters.get("weight")
    return weight is not None and weight.ndim == 2


def sizes(promise: Promise, modules: list[str], dim: int) -> set[int]:
    """The sizes of some modules' weights along a dim."""
    weights = (promise.tree.parameters.get(join(module, "weight")) for module in modules)
    return {weight.shape[dim] for weight in weights if weight is not None and weight.ndim > 1}


def key_of(promise: Promise, module: str) -> str | None:
    """The plan's key that put the last style on a module."""
    styles = promise.on.get(module)
    return styles[-1][0] if styles else None
