"""What one rank does with one case: build, load, run, compare, and report evidence.

Runs in a rank process or thread. Imports neither Hypothesis nor pytest. Only evidence goes back
to the driver; tensors go to a file, and only when the driver asks for them.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.comms.callsite import written
from tpcheck.comms.trace import Recorder
from tpcheck.protocol.bundle import apart, read_bundle
from tpcheck.protocol.conventions import named_outputs, scheduled_outputs, state_buffers
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.problem import Problem
from tpcheck.protocol.returned import file_of
from tpcheck.ranks import compiled, poison
from tpcheck.ranks.contexts import around, around_forward, noting
from tpcheck.ranks.converting import convert
from tpcheck.ranks.drawing import Masks
from tpcheck.ranks.habits import Habits
from tpcheck.ranks.judging import Judging
from tpcheck.ranks.kernel import observed, run_kernel
from tpcheck.ranks.loading import Loader
from tpcheck.ranks.order import disorder
from tpcheck.ranks.resuming import resumes
from tpcheck.ranks.share import Share
from tpcheck.ranks.stepping import step_once, trained
from tpcheck.tensors import case_mode, in_place
from tpcheck.tensors.boundaries import Watch
from tpcheck.tensors.dispatch import eagerly
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.live import local
from tpcheck.tensors.names import Key, Pass, Shelf, tensors_of
from tpcheck.vocabulary import Kind, Phase


class RankRun:
    """One case on one rank. `report` fills as it goes, so that a crash loses nothing of it."""

    def __init__(
        self, work: Work, parts: Mapping[str, Any], mesh: DeviceMesh, recorder: Recorder
    ) -> None:
        self.work, self.parts, self.mesh, self.recorder = work, parts, mesh, recorder
        self.case = work.case
        self.rank, cuda = recorder.rank, mesh.device_type == "cuda"
        self.device = torch.device("cuda", torch.cuda.current_device()) if cuda else "cpu"
        self.report = RankReport(self.rank)
        self.problem = self._load_problem()
        self.kept: dict[str, Tensor] = {}  # what a dump asks for
        self.apart: set[str] = set()  # buffers that are not compared
        self.share = Share(work, self.problem, self.rank, parts.get("constants", ()))
        self.judge = Judging(work, self.problem, mesh, self.report, self.kept)
        self.habits = Habits(parts.get("overwrites", ()), self.report)
        self.masks = Masks(work, self.problem, recorder, self.report)

    def _load_problem(self) -> Problem:
        d = self.case.dp_coordinate(self.rank)
        return read_bundle(Path(self.work.bundle), d, dict(self.work.targets), self.device)

    def run(self) -> RankReport:
        """Builds, loads, runs and compares; what the candidate raises is the caller's to catch."""
        start = time.perf_counter()
        module = self._build()
        if self._in_order(module):
            convert(module, self.device, torch_dtype(self.case))
            if self.work.saving:
                _save(self, module)
            elif (module := _load(self, module)) is not None:
                case_mode.enter(self.case, module, self.work.frozen)
                with self._as_asked(module), noting(self):
                    self._run(module)
        if self.device != "cpu":
            torch.cuda.synchronize()  # what a kernel of this case does wrong is told of this case
        self.report.events = self.recorder.events
        self.report.counted = self.recorder.counted
        self.report.seconds["rank"] = time.perf_counter() - start
        if self.work.dump:
            lost = self.recorder.saved.overwritten
            self.kept |= {str(Key(Shelf.OVERWRITTEN, where)): torch.zeros(1) for where in lost}
            _write(self.work.dump, self.rank, self.kept)
        _write(self.work.suspects, self.rank, self.judge.suspects)
        return self.report

    # ---- the parameters

    def _build(self) -> Any:
        self.recorder.phase = Phase.BUILD
        # not `torch.manual_seed`: it formats a stack for each lazy device, 80 times the cost
        torch.default_generator.manual_seed(self.case.seed)
        random.seed(self.case.seed)
        np.random.seed(self.case.seed % 2**32)
        if self.device != "cpu":
            torch.cuda.manual_seed(self.case.seed)
        with self.recorder:
            module = self.parts["candidate"](self.case, self.mesh)
        if self.parts.get("kernel") is None or not compiled.compiles(module):
            self.recorder.built()  # else its first call compiles, which may take longer than a case
        if isinstance(module, nn.Module):
            self.know(module)
        return module

    def know(self, module: nn.Module) -> None:
        """What the recorder tells by the module that it is in."""
        self.recorder.origin.know(module)
        if self.work.dump:
            self.report.code = written(module)
        if self.work.follow:
            self.recorder.origin.follow(module)

    def _in_order(self, module: Any) -> bool:
        """Whether the parallelisms were applied in an order that leaves each of them intact."""
        layout, full = self.work.params, self.problem.params
        found = disorder(module, case=self.case, rank=self.rank, layout=layout, full=full)
        self.report.mismatches += found
        return not found

    # ---- forward, backward, step

    def _run(self, module: Any) -> None:
        self.report.left += poison.spread()
        if (rules := self.parts.get("kernel")) is not None:
            return run_kernel(self, module, rules)
        with observed({}, self.report, self.work.of_kernels, self.recorder.turn):
            whole = trained(self, module) if self.parts.get("training") else self._stepped(module)
            if not whole:
                return
        for name, buffer in state_buffers(module, self.parts.get("training")):
            if name.base not in self.apart:
                self.judge.check(Kind.PARAM, str(name), buffer)

    def _stepped(self, module: Any) -> bool:
        """Backward, and perhaps a step of plain SGD; False where an output's shape is wrong."""
        if not self.passes(module):
            return False
        step_once(self, module)
        return True

    def passes(self, module: Any, step: int = 0) -> bool:
        """Forward and backward of a step's microbatches; False where an output's shape is wrong."""
        first = step * self.case.microbatches
        of_step = range(first, first + self.case.microbatches)
        return (self._scheduled if self.parts.get("schedule") else self._in_turn)(module, of_step)

    def _in_turn(self, module: Any, of_step: range) -> bool:
        """One microbatch after the other."""
        for i in of_step:
            if self.case.mode == "inference":
                self._infer(module, i)
            self.recorder.phase = Phase.FORWARD
            leaves, at = self.share.leaves(self.problem.inputs[i]), self._pass(i)
            self.masks.begin(at)
            in_pass = self.habits.in_pass(module, at, leaves)
            with in_pass, self.watching(module, at), around(self):
                outputs = self.forward(module, leaves)
                if not self.judge.outputs(outputs, at):
                    return False
                self.habits.returns({n: t for n, t in outputs.items() if n in self.work.outputs})
                self.recorder.phase = Phase.BACKWARD
                self._backward(outputs, i)
            self.masks.end()
            self.judge.input_gradients(leaves, at, self.share.scale)
        return True

    def _infer(self, module: Any, i: int) -> None:
        """A forward of a microbatch, whose results nobody needs."""
        self.recorder.phase = Phase.INFERENCE
        with case_mode.inference(module), around(self):
            self.forward(module, self.share.leaves(self.problem.inputs[i]))

    def _pass(self, i: int) -> Pass:
        step, microbatch = divmod(i, self.case.microbatches)
        return Pass(microbatch, step)

    def _scheduled(self, module: Any, of_step: range) -> bool:
        """All microbatches at once, in the order of the candidate's own schedule."""
        passes = [self.share.leaves(self.problem.inputs[i]) for i in of_step]
        seeds = [self.share.seeds(i) for i in of_step]
        self.recorder.phase = Phase.SCHEDULE
        with self.recorder, self._noting_saved(module), around(self):
            results = self.parts["schedule"](module, passes, seeds)
        outputs = scheduled_outputs(results, len(passes))
        complete = True
        for i, named, leaves in zip(of_step, outputs, passes, strict=True):
            complete = self.judge.outputs(named, self._pass(i)) and complete
            self.judge.input_gradients(leaves, self._pass(i), self.share.scale)
        return complete

    def _as_asked(self, module: Any) -> contextlib.AbstractContextManager[Any]:
        """Runs compiled modules eagerly, where that is asked for (not on threads: the switch is the
        process's): where modules are watched, Dynamo would trace the hooks that watch them, with
        graph breaks that the candidate does not have."""
        if not self.recorder.dispatch:
            return contextlib.nullcontext()
        self.report.compiles = compiled.compiles(module)
        return eagerly() if self.work.eager else contextlib.nullcontext()

    @contextlib.contextmanager
    def watching(self, module: Any, at: Pass) -> Iterator[None]:
        """Keeps what crosses the candidate's module boundaries, where that was asked for."""
        if at != self.work.watch or not isinstance(module, nn.Module):
            yield
            return
        with Watch(module, local) as watch:
            try:
                yield
            finally:
                self.kept |= {str(Key(Shelf.BORDER, key)): t.cpu() for key, t in watch.seen.items()}

    def forward(self, module: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        custom = self.parts.get("forward")
        self.report.left += poison.spread()
        inputs = in_place.given(inputs, self.habits.overwrites)
        with self.recorder, self._noting_saved(module), around_forward(self):
            result = custom(module, inputs) if custom else module(*inputs.values())
        if self.work.saved and not self.report.saved:
            self.report.saved = _saved_elements(module, self.recorder)
        return named_outputs(result)

    def _noting_saved(self, module: Any) -> Any:
        """A context in which what autograd saves is noted, where that was asked for."""
        if not (self.work.dump or self.work.saved):
            return contextlib.nullcontext()
        return self.recorder.saved.watch(module, bits=bool(self.work.dump))

    def _backward(self, outputs: Mapping[str, Tensor], m: int) -> None:
        seeds = self.share.upstream(outputs, m)
        self.habits.begins_from(seeds)
        if seeds:
            with self.recorder:
                torch.autograd.backward([outputs[name] for name in seeds], [*seeds.values()])


def _load(run: RankRun, module: Any) -> Any:
    """The module to run, with the rank's part of every parameter; None where it can't be."""
    loader = Loader(run.work, run.problem, run.recorder, run.report)
    own = None if resumes(run) else run.parts.get("load")  # which takes a step's results, too
    loaded = loader.load(module, own, run.parts.get("reads"))
    if loaded is not module and isinstance(loaded, nn.Module):
        run.know(loaded)
    run.apart = loader.apart
    if run.work.dump:
        for name, tensor in loader.held.items():
            run.kept[str(Key(Shelf.LOADED, name))] = local(tensor).detach().cpu().clone()
        for name, due in loader.due().items():
            run.kept[str(Key(Shelf.DUE, name))] = due.cpu().clone()
    return loaded


def _save(run: RankRun, module: Any) -> None:
    """Has the candidate write the checkpoint that others load."""
    if Loader(run.work, run.problem, run.recorder, run.report).load(module, None) is None:
        return
    if run.parts.get("resumes"):
        trained(run, module)
    else:
        run.recorder.phase = Phase.SAVE
        with run.recorder:
            run.parts["save"](module, Path(run.work.checkpoint))


def _saved_elements(module: Any, recorder: Recorder) -> int:
    """Elements of the distinct storages that autograd saved; parameters are not activations."""
    own = tensors_of(module).values() if isinstance(module, nn.Module) else []
    held = {local(t).untyped_storage().data_ptr() for t in own}
    return recorder.saved.elements(besides=held)


def _write(folder: str, rank: int, tensors: Mapping[str, Tensor]) -> None:
    if tensors:
        save_file(apart(tensors), file_of(Path(folder), rank))
