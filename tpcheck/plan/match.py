"""Which modules a plan's key matches, which it should, and what it could have meant.

Keys are matched as `parallelize_module` does it: level by level, each part of the key with
`fnmatch` against the names of the children. transformers' keys (`*` for a layer's number) match
the same modules under that rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from torch import Tensor, nn

from tpcheck.placement import Replicate, Shard
from tpcheck.tensors.live import plan_placement
from tpcheck.tensors.meshes import Axes, axes_of
from tpcheck.tensors.names import WRAPPERS, generic

# The attribute of DistributedDataParallel. A module of one's own may have that name, too, so it
# counts as a wrapper only where it is an only child.
DDP = "module"

#: Suggestions for a key, at most. Only the first is likely to be right: more hide it, fewer leave
#: out the siblings of a fused projection.
MOST = 3

#: How like a name must be (difflib's ratio) to be suggested for one that its module does not have.
#: Lower, and names that have nothing in common are suggested; higher, and `attn` no longer finds
#: `self_attn`.
ALIKE = 0.6

#: The same where more hangs on it: for whole keys, which are long and share most of their parts,
#: and where a likeness alone makes a layer count as missed.
SURELY_ALIKE = 0.75


class Tree:
    """A model's modules and parameters by name.

    Args:
        unwrapped: leave out the levels that wrappers added; else names are raw.
        axes: of a parallelized model's meshes, what their axes are.
    """

    def __init__(self, model: nn.Module, *, unwrapped: bool = False, axes: Axes = axes_of) -> None:
        self.model, self.axes = model, axes
        self.modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        if unwrapped:
            # of a wrapper and what it wraps, which now share a name, the latter comes last
            self.modules = {self.plain(name): module for name, module in self.modules.items()}
            del self.children

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Module → the names of its children, in the order of registration."""
        out: dict[str, list[str]] = {name: [] for name in self.modules}
        for name in self.modules:
            if name:
                parent, _, child = name.rpartition(".")
                out[parent].append(child)
        return out

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by its raw name; a tied one under each of its names."""
        return {
            join(owner, name): tensor
            for owner, module in self.modules.items()
            for name, tensor in module._parameters.items()
            if tensor is not None
        }

    def placement(self, name: str) -> Shard | Replicate | None:
        """How a parameter is placed along tp, as `plan_placement` has it."""
        return plan_placement(self.parameters[name], self.axes)

    @cached_property
    def _names(self) -> dict[int, list[str]]:
        out: dict[int, list[str]] = {}
        for name, module in self.modules.items():
            out.setdefault(id(module), []).append(name)
        return out

    def same(self, module: str) -> list[str]:
        """All names of a module: more than one where it is used in several places."""
        return self._names[id(self.modules[module])]

    @cached_property
    def kinds(self) -> dict[str, list[str]]:
        """`layers.*.mlp` → the modules of that pattern."""
        out: dict[str, list[str]] = {}
        for name in self.modules:
            out.setdefault(generic(name), []).append(name)
        return out

    def is_wrapper(self, parent: str, child: str) -> bool:
        """Whether `child` is a level that a wrapper added below `parent`."""
        return child in WRAPPERS or (child == DDP and self.children[parent] == [child])

    def plain(self, name: str) -> str:
        """A module's or parameter's name without the levels that wrappers added."""
        kept, path = [], ""
        for part in name.split("."):
            if not (path in self.children and self.is_wrapper(path, part)):
                kept.append(part)
            path = join(path, part)
        return ".".join(kept)


def join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def owner_of(parameter: str) -> str:
    """The module that holds a parameter."""
    return parameter.rpartition(".")[0]


@dataclass(frozen=True)
class Match:
    """What one key matched.

    Args:
        hits: modules, or parameters, in the model's order.
        missing: (module that was reached, the rest of the key that it does not have).
    """

    key: str
    hits: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]

    @property
    def expected(self) -> int:
        """How many it should have matched: one for each module that its wildcards reached."""
        return len(self.hits) + len(self.missing)


def match(tree: Tree, key: str, *, parameters: bool) -> Match:
    """Follows `key` down the tree.

    Args:
        parameters: whether the last part may also name a parameter (string plans).
    """
    if key == "":
        return Match(key, ("",), ())
    parts = key.split(".")
    reached, missing = [""], []
    for i, part in enumerate(parts):
        following: list[str] = []
        for path in reached:
            below = [join(path, c) for c in tree.children.get(path, ()) if fnmatchcase(c, part)]
            if not below and parameters and i == len(parts) - 1 and path in tree.modules:
                owned = tree.modules[path]._parameters
                below = [join(path, n) for n, p in owned.items() if p is not None and n == part]
            following += below
            if not below:
                missing.append((path, ".".join(parts[i:])))
        reached = following
    return Match(key, tuple(reached), tuple(missing))


def candidates(tree: Tree, matched: Match) -> tuple[str, ...]:
    """Keys that `matched.key` could have meant, the likeliest first: the same key through a
    wrapper, under another root, or with a name that is like the one that does not exist."""
    kinds = [kind for kind in tree.kinds if kind]
    wanted = generic(matched.key)
    near = _elsewhere(tree, kinds, wanted) or _misspelt(tree, kinds, matched)
    near = [kind for kind in near if kind in kinds]
    if not near:
        last = wanted.rpartition(".")[2]
        same = [k for k in kinds if k.rpartition(".")[2] == last]
        near = [*same, *difflib.get_close_matches(wanted, kinds, n=MOST, cutoff=SURELY_ALIKE)]
    return tuple(dict.fromkeys(near))[:MOST]


def _elsewhere(tree: Tree, kinds: list[str], wanted: str) -> list[str]:
    """The same key through a wrapper, below a root, or without one."""
    near = [k for k in kinds if _same(_without_wrappers(tree, k), wanted) and k != wanted]
    near += [k for k in kinds if k.endswith(f".{wanted}")]
    parts = wanted.split(".")
    tails = [".".join(parts[i:]) for i in range(1, len(parts))]
    return near + [tail for tail in tails if tail in kinds]


def _misspelt(tree: Tree, kinds: list[str], matched: Match) -> list[str]:
    """The same key with another child where the first of its paths ends."""
    near: list[str] = []
    for path, rest in matched.missing[:1]:
        part, _, below = rest.partition(".")
        children = tree.children.get(path, ())
        others = [join(join(generic(path), child), below) for child in children]
        near += [kind for kind in others if below and kind in kinds]
        likes = [join(generic(path), child) for child in alike(part, children)]
        near += [join(full, below) if join(full, below) in kinds else full for full in likes]
    return near


def _without_wrappers(tree: Tree, kind: str) -> str:
    return generic(tree.plain(tree.kinds[kind][0]))


def _same(one: str, other: str) -> bool:
    """Whether two patterns agree level by level, where `*` stands for any name."""
    a, b = one.split("."), other.split(".")
    return len(a) == len(b) and all(
        fnmatchcase(x, y) or fnmatchcase(y, x) for x, y in zip(a, b, strict=True)
    )


def alike(part: str, children: Iterable[str], *, cutoff: float = ALIKE) -> list[str]:
    """Children whose names are like `part`: fused ones first (`qkv_proj` for `k_proj`)."""
    names = [c for c in children if not c.isdigit()]
    head, _, tail = part.partition("_")
    fused = [
        n
        for n in names
        if n != part
        and n.endswith(tail)
        and (head in n.split("_")[:-1] or (head in "qkv" and "qkv" in n))
    ]
    return [*fused, *difflib.get_close_matches(part, names, n=MOST, cutoff=cutoff)]


def wrapper_on(tree: Tree, matched: Match) -> str | None:
    """The attribute of a wrapper between a key and the modules that it means."""
    for path, _ in matched.missing:
        for child in tree.children.get(path, ()):
            if tree.is_wrapper(path, child):
                return child
    return None
