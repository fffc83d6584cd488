"""`Check`: a spec and a candidate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from tpcheck.case import Case
from tpcheck.discipline import Kernel
from tpcheck.errors import InvalidArgument, did_you_mean, shown
from tpcheck.given import A_NAME, demand, demand_callables, is_name
from tpcheck.known import KnownFinding
from tpcheck.parts import require_calls, require_checkpoint, require_place_of_contexts
from tpcheck.process.loaded import is_installed
from tpcheck.spec import Spec

Address = tuple[str, str]  # a file, and the variable in it

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    Candidate = Callable[[Case, DeviceMesh], Callable[..., Any]]
    #: (module, full state), or (module, folder) where the check has `save`, or (module, optimizer,
    #: folder) where it resumes.
    Load = Callable[..., Any]
    Save = Callable[..., None]
    Passes = Sequence[Mapping[str, Tensor]]
    Schedule = Callable[[Any, Passes, Passes], Sequence[Any]]
    Clip = Callable[[Any, DeviceMesh, float], Any]
    OwnOptimizer = Callable[[Any, DeviceMesh], Any]
    Context = Callable[[], AbstractContextManager[Any]]
    Witness = Callable[[Case], Mapping[tuple[str, str], int]]


@dataclass(frozen=True, eq=False)
class Check:
    """A spec and a candidate: `Check(specs.column_linear(), candidate=build)`.

    Args:
        spec: what must hold.
        candidate: `build(case, mesh)`, called on every rank; `mesh["tp"].get_group()` is the TP
            group. Returns the module (or function) under test with its parameters in any state:
            the harness overwrites them.
        name: shown in reports; by default the name of the variable that holds the check.
        load: (module, full state) → None: the candidate's own loader, given every full parameter
            and buffer that a checkpoint has, by its reference name. It fills the candidate's, or
            puts others in their place; or it returns a module of its own, which is then the one
            that is checked. By default the harness loads slices by the layout.
        save: (module, folder) → None: the candidate's own checkpoint, of the parameters and buffers
            that the harness has loaded. `load` is then (module, folder) → None, on ranks of this or
            of another TP degree (`Case.saved_at`), and what it leaves must be what was saved, to
            the bit.
        resumes: whether the checkpoint is one of training: `save` and `load` are (module,
            optimizer, folder) → None. Ranks save after the first step; those that load begin with
            parameters of NaN and a new optimizer, must have what the first step leaves, the
            optimizer's state included, within its bounds, and take the other steps. The optimizer
            is the check's own, or the spec's, of the rank's parameters; its schedule the harness's.
        reads: how many times the bytes of its own part of the checkpoint a rank may read of the
            files in `load`, headers and indices included: more is a FAIL. What counts as read is
            said in `tpcheck.ranks.reading`. None: it is counted, and not judged.
        schedule: (module, inputs, cotangents) → outputs: the candidate's own order of forwards and
            backwards, as a pipeline has it, in place of one microbatch after the other. `inputs`
            and `cotangents` are lists, of each microbatch name → this rank's part; the inputs are
            leaves, and their gradients are read from them afterwards, as the parameters' are.
            Returns the outputs of each microbatch: a tensor, a tuple, or a dict, which is empty
            on ranks that have none. The forward after a step calls the module as usual.
        clip: (module, mesh, most) → the norm of all gradients on this rank's TP group, which it has
            clipped to `most`: the candidate's own, where the spec asks for a norm. By default
            `torch.nn.utils.clip_grad_norm_`, which knows DTensors.
        optimizer: (module, mesh) → the candidate's own optimizer, where the spec trains: torch's,
            or an object with `step()`, `zero_grad()` and `state`, parameter → key → tensor. By
            default the spec's (`Training(optimizer=…)`), of the module's parameters.
        context: () → a context manager, in which each microbatch runs forward and backward on the
            ranks (`torch.distributed.tensor.parallel.loss_parallel`, `sdpa_kernel`); under a
            schedule all of them together. The reference runs outside of it.
        forward_context: the same of forwards alone, as `torch.autocast` is meant to be used.
        communication: hold the candidate to the spec's communication budget: more than it is a
            FAIL, though every value is right. Off by default, since correct code may well send
            more (one gather per projection, recomputed collectives under checkpointing).
        plan: the plan that the candidate is built by, as `tpcheck.audit` takes it, or case → plan.
            It is audited on the reference, without ranks, and held against the parameters that
            each rank has; a finding is a mismatch of kind `sharding`.
        overrides: fields of the spec for this candidate: its own callables (`finalize=…`,
            `layout=…`), or what narrows or widens the cases (`dims=…`, `dtypes=…`, `degrees=…`).
        processes: whether the candidate keeps something in global variables (process groups, say),
            so that ranks can't share a process, or sends and receives, which threads can't: under
            the threads engine it runs on real ranks.
        known: faults of released packages that the check finds (`tpcheck.KnownFinding`): shown,
            and held to, but no FAIL.
        kernel: what a kernel is held to besides its values; None of a model.
        witness: case → (phase, name) → how often it must run in one microbatch, on each rank: what
            shows that the candidate takes the path that is meant, and not another that gives the
            same values. Names are those of `Budget(at_least=…)`: a collective, a Triton kernel, an
            operator of a `torch.library`.
    """

    spec: Spec
    candidate: Candidate
    name: str = ""
    load: Load | None = None
    save: Save | None = None
    resumes: bool = False
    reads: float | None = None
    schedule: Schedule | None = None
    clip: Clip | None = None
    optimizer: OwnOptimizer | None = None
    context: Context | None = None
    forward_context: Context | None = None
    communication: bool = False
    plan: Any = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    processes: bool = False
    known: Sequence[KnownFinding] = ()
    kernel: Kernel | None = None
    witness: Witness | None = None

    _collected: ClassVar[Address | None] = None  # of what `named` has made; of none by itself

    def __post_init__(self) -> None:
        if not isinstance(self.spec, Spec):
            given = type(self.spec).__name__
            raise InvalidArgument(f"Check(spec=…) is a {given}; pass a Spec, as specs.*() returns")
        if not callable(self.candidate):
            given = type(self.candidate).__name__
            raise InvalidArgument(
                f"Check(candidate=…) is a {given}; pass a function build(case, mesh) -> module"
            )
        demand(self, "name", self.name == "" or is_name(self.name), A_NAME)
        optional = "load save schedule clip optimizer witness context forward_context"
        demand_callables(self, *optional.split(), optional=True)
        for flag in ("communication", "processes", "resumes"):
            demand(self, flag, isinstance(getattr(self, flag), bool), "True or False")
        findings = isinstance(self.known, (list, tuple)) and all(
            isinstance(finding, KnownFinding) for finding in self.known
        )
        demand(self, "known", findings, "a list of KnownFindings")
        rules = self.kernel is None or isinstance(self.kernel, Kernel)
        demand(self, "kernel", rules, "a Kernel, as kernel_check sets it, or None")
        what = "a mapping of the spec's fields"
        demand(self, "overrides", isinstance(self.overrides, Mapping), what)
        known = set(Spec.__dataclass_fields__) - {"name"}
        for name in self.overrides:
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise InvalidArgument(
                    f"overrides={{{shown(name)}: …}} is not a field of a Spec{hint}"
                )
        if self.overrides:
            object.__setattr__(self, "spec", replace(self.spec, **self.overrides))
        if self.spec.reference is None:
            raise InvalidArgument(
                f"Check(spec=…): spec {self.spec.name!r} has no reference; give it one, or a "
                "Relation, which has another candidate in its place"
            )
        require_calls(self)
        require_checkpoint(self)
        require_place_of_contexts(self)
        if self.clip is not None and self.spec.norm is None:
            raise InvalidArgument(
                f"Check(clip=…): spec {self.spec.name!r} asks for no norm; give Spec(norm=Norm())"
            )
        if self.optimizer is not None and self.spec.training is None:
            raise InvalidArgument(
                f"Check(optimizer=…): spec {self.spec.name!r} has no steps of one; give "
                "Spec(training=Training(…))"
            )
        if self.communication and self.spec.budget is None:
            raise InvalidArgument(
                f"Check(communication=True): spec {self.spec.name!r} has no budget to hold the "
                "candidate to; give Spec(budget=…)"
            )

    def named(self, name: str, at: Address | None = None) -> Check:
        """The same check under another name.

        Args:
            at: where it was collected, which is its address from then on.
        """
        check = replace(self, name=name, overrides={})
        object.__setattr__(check, "_collected", at)
        return check

    @property
    def title(self) -> str:
        """The name to show: the given one, the variable's, or the spec's."""
        return self.name or (self.address() or ("", self.spec.name))[1]

    def address(self) -> Address | None:
        """Where a new process finds this check, or None: where it was collected, or else by the
        variable that holds it. A copy of one that is held, as `replace` makes it, has its place."""
        if self._collected is not None:
            return self._collected
        home = sys.modules.get(getattr(self.candidate, "__module__", None) or "")
        kinds = _with_subclasses(Check)
        copied: Address | None = None
        for module, file in _by_likelihood(home):
            # by type: `isinstance` would wake lazy objects of other libraries
            names = list(vars(module).items())
            held = [(name, value) for name, value in names if type(value) in kinds]
            if not held:
                _WITHOUT[file] = len(names)
            for variable, value in held:
                if value is self:
                    return file, variable
                if copied is None and self._is_copy_of(value):
                    copied = file, variable
        return copied

    def _is_copy_of(self, other: Check) -> bool:
        """Whether the two differ in their names alone, if at all."""
        parts = {one.name for one in fields(self)} - {"name", "overrides"}
        same = (getattr(other, part) is getattr(self, part) for part in parts)
        return type(other) is type(self) and all(same)


#: File of a module that held no check → how many names it had. A check that is made by a function
#: is in no module, and to look for it through all takes longer than a case.
_WITHOUT: dict[str, int] = {}


def _by_likelihood(home: ModuleType | None) -> Iterator[tuple[ModuleType, str]]:
    """Modules of Python files with their files: first `home`, then those of no installed package,
    since a look into each of the others takes longer than all the rest of a search; those of them
    that held no check have been looked into."""
    installed = []
    for module in (home, *list(sys.modules.values())):
        file = str(getattr(module, "__file__", ""))
        if module is None or not file.endswith(".py"):
            continue
        if is_installed(file) and module is not home:
            if _WITHOUT.get(file) != len(vars(module)):
                installed.append((module, file))
        else:
            yield module, file
    yield from installed


def dp_can_be(check: Check) -> bool:
    """Whether the check suits cases of several dp coordinates: not where each of them leaves other
    parameters after a step, of which a checkpoint has one."""
    return not check.resumes or check.spec.shares_gradients


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, kind.__subclasses__()))
