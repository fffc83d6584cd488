"""What one rank does with one case: build, load, run, compare, and report evidence.

Runs in a rank process or thread. Imports neither Hypothesis nor pytest. Only evidence goes back
to the driver; tensors go to a file, and only when the driver asks for them.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck import placement
from tpcheck.bounds import compare, other_rules
from tpcheck.cleanup import end_case
from tpcheck.comms import frames
from tpcheck.comms.trace import Recorder
from tpcheck.errors import CollectiveMismatch, InvalidArgument
from tpcheck.placement import Entry, Partial, Replicate, by_axis, take
from tpcheck.protocol.bundle import read_bundle
from tpcheck.protocol.conventions import at, float_buffers, named_outputs, sgd_step
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.problem import Problem, Target
from tpcheck.ranks import compiled
from tpcheck.ranks.loading import Loader, elsewhere
from tpcheck.ranks.order import disorder
from tpcheck.tensors.boundaries import Watch
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.live import cut_by_hand, is_dtensor, like, live_entry, local
from tpcheck.tensors.names import parameters_of, tensors_of
from tpcheck.tensors.strides import lay_out
from tpcheck.verdict import Mismatch


class RankRun:
    """One case on one rank. `report` fills as it goes, so that a crash loses nothing of it."""

    def __init__(
        self, work: Work, parts: Mapping[str, Any], mesh: DeviceMesh, recorder: Recorder
    ) -> None:
        self.work, self.parts, self.mesh, self.recorder = work, parts, mesh, recorder
        self.case = work.case
        self.rank = recorder.rank
        cuda = mesh.device_type == "cuda"
        self.device = torch.device("cuda", torch.cuda.current_device()) if cuda else "cpu"
        self.report = RankReport(self.rank)
        self.problem = self._load_problem()
        self.targets = {(t.kind, t.name): t for t in self.problem.targets}
        self.kept: dict[str, Tensor] = {}
        self.suspects: dict[str, Tensor] = {}

    def _load_problem(self) -> Problem:
        d = self.case.coordinates(self.rank).get("dp", 0)
        return read_bundle(Path(self.work.bundle), d, dict(self.work.targets), self.device)

    def run(self) -> RankReport:
        """Builds, loads, runs and compares; exceptions of the candidate are the caller's."""
        start = time.perf_counter()
        module = self._build()
        if self._in_order(module):
            self._convert(module)
            if self._load(module):
                with self._uncompiled(module):
                    self._run(module)
        self.report.events = [e.to_dict() for e in self.recorder.events]
        self.report.seconds["rank"] = time.perf_counter() - start
        if self.work.dump:
            self.kept |= {f"overwritten/{w}": torch.zeros(1) for w in self.recorder.overwritten}
        for folder, tensors in ((self.work.dump, self.kept), (self.work.suspects, self.suspects)):
            if folder and tensors:
                unique = {k: t.contiguous().clone() for k, t in tensors.items()}
                save_file(unique, Path(folder) / f"rank{self.rank}.safetensors")
        return self.report

    # ---- the parameters

    def _build(self) -> Any:
        self.recorder.phase = "build"
        # not `torch.manual_seed`: it formats a stack for each lazy device, 80 times the cost
        torch.default_generator.manual_seed(self.case.seed)
        if self.device != "cpu":
            torch.cuda.manual_seed(self.case.seed)
        with self.recorder:
            module = self.parts["candidate"](self.case, self.mesh)
        if isinstance(module, nn.Module):
            self.recorder.origin.know(module)
            if self.work.follow:
                self.recorder.origin.follow(module)
        return module

    def _in_order(self, module: Any) -> bool:
        """Whether the parallelisms were applied in an order that leaves each of them intact."""
        found = disorder(
            module,
            case=self.case,
            rank=self.rank,
            layout=self.work.params,
            full=self.problem.params,
        )
        self.report.mismatches += found
        return not found

    def _convert(self, module: Any) -> None:
        if isinstance(module, nn.Module):
            module.to(device=self.device, dtype=torch_dtype(self.case))

    def _load(self, module: Any) -> bool:
        loader = Loader(self.work, self.problem, self.recorder, self.report)
        fits = loader.load(module, self.parts.get("load"))
        if self.work.dump:
            for name, tensor in loader.held.items():
                self.kept[f"loaded/{name}"] = local(tensor).detach().cpu().clone()
        return fits

    # ---- forward, backward, step

    def _run(self, module: Any) -> None:
        complete = (self._scheduled if self.parts.get("schedule") else self._passes)(module)
        if not complete:
            return
        self._read_gradients(module)
        for name, buffer in float_buffers(module):
            self._check("param", name, buffer)

    def _passes(self, module: Any) -> bool:
        """One microbatch after the other; False where an output's shape is wrong."""
        for m, inputs in enumerate(self.problem.inputs):
            self.recorder.phase = "forward"
            leaves = self._leaves(inputs)
            with self._watching(module, m):
                outputs = self._forward(module, leaves)
                complete = self._check_outputs(outputs, m)
                if not complete:
                    return False
                self.recorder.phase = "backward"
                self._backward(outputs, m)
            self._check_input_gradients(leaves, m)
        return True

    def _scheduled(self, module: Any) -> bool:
        """All microbatches at once, in the order of the candidate's own schedule."""
        passes = [self._leaves(inputs) for inputs in self.problem.inputs]
        seeds = [self._seeds(m) for m in range(len(passes))]
        self.recorder.phase = "schedule"
        with self.recorder, self._noting_saved():
            results = self.parts["schedule"](module, passes, seeds)
        if not isinstance(results, (list, tuple)) or len(results) != len(passes):
            given = f"a {type(results).__name__}"
            if isinstance(results, (list, tuple)):
                given += f" of {len(results)}"
            raise InvalidArgument(
                f"the check's schedule returned {given} for {len(passes)} microbatches; return "
                "a list of the outputs of each"
            )
        complete = True
        for m, (result, leaves) in enumerate(zip(results, passes, strict=True)):
            complete = self._check_outputs(named_outputs(result), m) and complete
            self._check_input_gradients(leaves, m)
        return complete

    def _has(self, entry: Entry) -> bool:
        """Whether this rank is to have any of a tensor that lies so."""
        return placement.holds(entry, case=self.case, rank=self.rank)

    def _seeds(self, m: int) -> dict[str, Tensor]:
        """This rank's part of each output's cotangent; of those that it is to have."""
        given = self.problem.cotangents[m] if m < len(self.problem.cotangents) else {}
        return {
            name: lay_out(take(full, entry, case=self.case, rank=self.rank), self.case.memory)
            for name, full in given.items()
            if self._has(entry := self.work.outputs[name])
        }

    def _leaves(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of each input; of those that it is to have."""
        return {n: self._leaf(n, t) for n, t in inputs.items() if self._has(self.work.inputs[n])}

    def _check_input_gradients(self, leaves: Mapping[str, Tensor], m: int) -> None:
        for name, leaf in leaves.items():
            if leaf.requires_grad:
                self._check("input_grad", at(name, m), leaf.grad)

    def _uncompiled(self, module: Any) -> contextlib.AbstractContextManager[Any]:
        """Runs compiled modules eagerly, where that is asked for (not on threads: the switch is the
        process's)."""
        if not self.work.eager or not self.recorder.dispatch:
            return contextlib.nullcontext()
        self.report.uncompiled = compiled.compiles(module)
        return compiled.eagerly()

    @contextlib.contextmanager
    def _watching(self, module: Any, m: int | str) -> Iterator[None]:
        """Keeps what crosses the borders of the candidate's modules, where that was asked for."""
        if m != self.work.watch or not isinstance(module, nn.Module):
            yield
            return
        with Watch(module, local) as watch:
            try:
                yield
            finally:
                self.kept |= {f"border/{key}": t.cpu() for key, t in watch.seen.items()}

    def _forward(self, module: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        custom = self.parts.get("forward")
        with self.recorder, self._noting_saved():
            result = custom(module, inputs) if custom else module(*inputs.values())
        if self.work.saved and not self.report.saved:
            self.report.saved = self._saved_elements(module)
        return named_outputs(result)

    def _noting_saved(self) -> Any:
        """A context in which what autograd saves is noted, where that was asked for."""
        if not (self.work.dump or self.work.saved):
            return contextlib.nullcontext()
        return self.recorder.watch_saved(bits=bool(self.work.dump))

    def _saved_elements(self, module: Any) -> int:
        """Elements of the distinct storages that autograd saved; parameters are no activations."""
        own = tensors_of(module).values() if isinstance(module, nn.Module) else []
        held = {local(t).untyped_storage().data_ptr() for t in own}
        sizes = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() // t.element_size()
            for t in self.recorder.saved
        }
        return sum(n for storage, n in sizes.items() if storage not in held)

    def _leaf(self, name: str, full: Tensor) -> Tensor:
        part = take(full, self.work.inputs[name], case=self.case, rank=self.rank)
        part = lay_out(part, self.case.memory) if part.is_floating_point() else part.clone()
        return part.detach().requires_grad_(part.is_floating_point())

    def _check_outputs(self, outputs: Mapping[str, Tensor], m: int | str) -> bool:
        complete = True
        suffix = at("", m)
        wanted = {  # name → its target in this pass
            base: (kind, name)
            for kind, name in self.targets
            if kind in ("output", "loss")
            and at(base := name.removesuffix(suffix) if suffix else name, m) == name
            and "@" not in base
        }
        for base, (kind, name) in wanted.items():
            actual, dtype = outputs.get(base), self.targets[kind, name].dtype
            fits = self._check(kind, name, actual, dtype=dtype)
            complete = fits and complete
            if not fits and actual is None:
                # a wrong name, as of a tuple, says more than that it is not there
                names = {"returned": list(outputs), "wanted": list(wanted)}
                self.report.mismatches[-1].detail.update(names)
        return complete

    def _backward(self, outputs: Mapping[str, Tensor], m: int) -> None:
        roots, seeds = [], []
        for name, output in outputs.items():
            given = self.problem.cotangents[m] if m < len(self.problem.cotangents) else {}
            full = given.get(name)
            if full is None or not output.requires_grad:
                continue
            entry = live_entry(output) if is_dtensor(output) else self.work.outputs[name]
            seed = take(full, entry, case=self.case, rank=self.rank).to(output.dtype)
            seed = lay_out(seed, self.case.memory)
            roots.append(output)
            seeds.append(like(output, seed))
        if roots:
            with self.recorder:
                torch.autograd.backward(roots, seeds)

    def _read_gradients(self, module: Any) -> None:
        if not isinstance(module, nn.Module):
            return
        finalize = self.parts.get("finalize")
        if finalize:
            with self.recorder:
                finalize(module, self.mesh)
        params = parameters_of(module)
        for kind, name in list(self.targets):
            if kind == "param_grad":
                # one that the candidate froze, or made a buffer of, has no gradient: a mismatch
                self._check(kind, name, params[name].grad if name in params else None)
        if not self.case.step or not params:
            return
        self.recorder.phase = "step"
        sgd_step(params.values())
        for name, param in params.items():
            self._check("param", name, param.detach())
        with torch.no_grad():
            leaves = self._leaves(self.problem.inputs[0])
            with self._watching(module, "step"):
                outputs = self._forward(module, leaves)
            self._check_outputs(outputs, "step")

    # ---- comparison

    def _check(
        self, kind: str, name: str, actual: Tensor | None, *, dtype: torch.dtype | None = None
    ) -> bool:
        """Compares one tensor; False where its shape is wrong, so that the run can't go on."""
        target = self.targets.get((kind, name))
        if target is None or (actual is None and target.unused):
            return True
        if not self._has(target.entry):
            if actual is not None and kind in ("output", "loss"):
                detail = {"elsewhere": elsewhere(target.entry, self.case, self.rank)}
                self.report.mismatches.append(Mismatch(name, kind, self.rank, detail=detail))
            return True
        entry, actual = self._settle(target, actual)
        expected, sigma = (
            take(t, entry, case=self.case, rank=self.rank)
            for t in (target.value, target.spread.sigma)
        )
        spread = replace(target.spread, sigma=sigma)
        self.report.digests[kind, name] = compare.fingerprint(actual)
        if self.work.dump and actual is not None:
            self.kept[f"{kind}/{name}"] = actual.detach().cpu()
        self.report.compared += 1
        if self.work.rules and target.own is not None:
            own = take(target.own, entry, case=self.case, rank=self.rank)
            self.report.alarms |= other_rules.alarms(actual, expected, own, target)
        found = compare.compare(
            actual, expected, spread, name=name, kind=kind, rank=self.rank, dtype=dtype
        )
        if found.mismatch is not None:
            self.report.mismatches.append(found.mismatch)
            if actual is not None and found.mismatch.error is not None:
                self.report.suspects[kind, name] = entry
                self.suspects[f"{kind}/{name}"] = actual.detach().cpu()
        else:
            self.report.usage = max(self.report.usage, found.usage)
        return actual is not None and actual.shape == expected.shape

    def _settle(self, target: Target, actual: Tensor | None) -> tuple[Entry, Tensor | None]:
        """The placement to compare under, and the local tensor (sums of partials are taken)."""
        if actual is None:
            return _summed(target.entry), None
        entry = target.entry
        if is_dtensor(actual):
            others = cut_by_hand(actual, target.value, entry, self.case, self.rank)
            live, actual = others | by_axis(live_entry(actual)), local(actual)
            sizes = self.case.mesh  # on an axis of one rank every placement is the whole
            entry = {
                axis: Replicate() if sizes.get(axis, 1) == 1 else own for axis, own in live.items()
            }
        elif target.kind in ("param", "param_grad") and entry == self.work.params[target.name]:
            entry = self.report.entries.get(target.name, entry)  # unless `grads` says otherwise
        for axis, own in by_axis(entry).items():
            if isinstance(own, Partial) and self.case.mesh.get(axis, 1) > 1:
                actual = actual.detach().clone()
                dist.all_reduce(actual, group=self.mesh[axis].get_group())
        return _summed(entry), actual


def _summed(entry: Entry) -> Entry:
    return {
        axis: Replicate() if isinstance(own, Partial) else own
        for axis, own in by_axis(entry).items()
    }


def run_case(
    work: Work, parts: Mapping[str, Any], mesh: DeviceMesh, recorder: Recorder
) -> RankReport | Mismatch:
    """Runs one case; what the candidate raises becomes a `Mismatch` with its own traceback."""
    try:
        return RankRun(work, parts, mesh, recorder).run()
    except CollectiveMismatch as error:
        last = recorder.events[-1]
        detail = {"reason": str(error), "stack": frames.stack(error)}
        detail |= {"module": last.module, "phase": last.phase}
        return Mismatch("collective", "collective", recorder.rank, detail=detail)
    except Exception as error:
        detail = {
            "type": type(error).__name__,
            "reason": str(error).strip().split("\n")[0][:400],
            "phase": recorder.phase,
            "stack": frames.stack(error),
        }
        return Mismatch("exception", "exception", recorder.rank, detail=detail)
    finally:
        end_case()
        if (
            recorder.dispatch
        ):  # threads share a compiler, and a candidate that compiles can't be there
            compiled.forget()
        gc.collect(0)
