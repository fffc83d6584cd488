"""What comes after the last backward: gradients are made whole, read and clipped, and a step is
taken by them; in training, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.errors import InvalidArgument, shown
from tpcheck.evidence import Undisciplined
from tpcheck.protocol.conventions import sgd_step
from tpcheck.protocol.optimizing import Mains, Optimizing, main_dtype, once
from tpcheck.protocol.scaling import Scaler, unscaled
from tpcheck.ranks import norming
from tpcheck.ranks.contexts import around
from tpcheck.ranks.holding import Holding
from tpcheck.ranks.own_steps import OwnSteps
from tpcheck.ranks.resuming import poison, resume, resumes, save
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.live import is_dtensor, local
from tpcheck.tensors.names import NORM, STEP, InPass, Key, Pass, Shelf, parameters_of
from tpcheck.training import Training
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Habit, Kind, Phase


def step_once(run: Any, module: Any) -> None:
    """Reads the gradients; then, where the case has that, what a step of plain SGD leaves.

    Args:
        run: the `RankRun`.
    """
    if not isinstance(module, nn.Module):
        return
    params, _ = _read_gradients(run, module, 0)
    if (run.case.step or run.problem.most) and params:
        _step(run, module, params)


def trained(run: Any, module: Any) -> bool:
    """Takes the steps of an optimizer; False where an output's shape is wrong.

    Args:
        run: the `RankRun`.
    """
    training: Training = run.parts["training"]
    begins, ends = (int(resumes(run)), 1 if run.work.saving else training.steps)
    run.report.steps, run.report.updates = ends - begins, True
    if begins:
        poison(run, module)
    optimizing = _optimizing(run, module, training)
    own_steps = OwnSteps(run, module, training)
    idle = [*parameters_of(module, run.problem.idle).values()]
    if begins:
        kept = resume(run, module, optimizing)
        own_steps.resumed(kept)
        _holding(run).parameters(module)
        _holding(run).elsewhere(module)
        _holding(run).state(kept, begins - 1)
    for step in range(begins, ends):
        run.recorder.phase = Phase.STEP
        with run.recorder:
            optimizing.zero(idle)
        run.share.scale = optimizing.scale
        if not run.passes(module, step):
            return False
        params, scale = _read_gradients(run, module, step, optimizing)
        own_steps.begin(params, step, scale)
        run.recorder.phase = Phase.STEP
        with run.recorder:
            optimizing.step()
            optimizing.end()
        kept = optimizing.state(params)
        own_steps.end(params, kept, step)
        _holding(run).state(kept, step)
        run.judge.of_parameters(Kind.OPTIMIZER_STATE, kept, step)
        at = Pass(0, step)
        for name, param in params.items():
            run.judge.check(Kind.PARAM, str(InPass(name, at)), param.detach())
    if run.work.saving:
        save(run, module, optimizing)
    return True


def _optimizing(run: Any, module: Any, training: Training) -> Optimizing:
    """The candidate's own optimizer, or the spec's of its parameters."""
    run.recorder.phase = Phase.STEP
    with run.recorder:
        if (build := run.parts.get("optimizer")) is not None:
            own, whose = build(module, run.mesh), "the check's optimizer"
            torchs = isinstance(own, torch.optim.Optimizer)  # no other takes a schedule of torch's
            schedule = training.schedule if torchs else None
            return Optimizing(own, schedule, whose, scales=training.scaling is not None)
        held, whose = main_dtype(training.main, torch_dtype(run.case)), "training's optimizer"
        params = once(parameters_of(module, run.problem.params))
        mains = Mains(params, held) if held else None
        scaler = None
        if training.scaling is not None:
            scaler = Scaler(training.scaling, params, partial(_everywhere, run))
        given = mains.copies if mains else params
        return Optimizing(training.optimizer(given), training.schedule, whose, mains, scaler)


def _everywhere(run: Any, finite: bool) -> bool:
    """Whether it holds on all ranks of the case."""
    every = torch.tensor(float(finite), device=run.device)
    dist.all_reduce(every, dist.ReduceOp.MIN)
    return bool(every)


def _read_gradients(
    run: Any, module: nn.Module, step: int, optimizing: Optimizing | None = None
) -> tuple[dict[str, nn.Parameter], float]:
    """The gradients are made whole, compared as they are of a loss that is not scaled, and clipped;
    returns the parameters, and which scale of the loss is left in their gradients."""
    if finalize := run.parts.get("finalize"):
        _keep_unfinished(run, module, step)
        run.recorder.phase = Phase.BACKWARD  # after a candidate's own schedule, too
        with run.recorder:
            finalize(module, run.mesh)
    params = parameters_of(module, run.problem.params)
    grads = {n: unscaled(p.grad, run.share.scale) for n, p in params.items()}
    holding = _holding(run)
    if not step:
        holding.parameters(module)
        holding.elsewhere(module)
    holding.gradients({n: p.grad for n, p in params.items()}, step)
    run.judge.of_parameters(Kind.PARAM_GRAD, grads, step)
    _still_frozen(run, params, step)
    scale = 1.0
    if optimizing is not None:
        _overflow(run, params, step)
        scale = _unscale(run, params, optimizing)
    if step < len(run.problem.most):
        _clip(run, module, run.problem.most[step], step)
    return params, scale


def _unscale(run: Any, params: Mapping[str, nn.Parameter], optimizing: Optimizing) -> float:
    """The optimizer divides gradients by the scale of the loss, or copies of its own and leaves
    `grad` as it is. Returns what is left of the scale there."""
    scale = run.share.scale
    held = {n: p.grad for n, p in params.items() if p.grad is not None} if scale != 1.0 else {}
    before = {name: local(grad).detach().clone() for name, grad in held.items()}
    run.recorder.phase = Phase.STEP
    with run.recorder:
        optimizing.unscale()
    stays = all(params[n].grad is grad for n, grad in held.items())
    stays = stays and all(torch.equal(local(held[n]), own) for n, own in before.items())
    return scale if before and stays else 1.0


def _keep_unfinished(run: Any, module: nn.Module, step: int) -> None:
    """Gradients as backward left them, where a dump asks for them."""
    if not run.work.dump:
        return
    for name, parameter in parameters_of(module, run.problem.params).items():
        grad = unscaled(parameter.grad, run.share.scale)
        if grad is not None and local(grad).layout is torch.strided:
            key = Key(Shelf.UNFINISHED, str(InPass(name, Pass(0, step))))
            run.kept[str(key)] = local(grad).detach().cpu().clone()


def _holding(run: Any) -> Holding:
    return Holding(run.work, run.problem.params, run.judge.targets, run.report)


def _still_frozen(run: Any, params: Mapping[str, nn.Parameter], step: int) -> None:
    """What takes no gradient in the reference has none here."""
    for name in run.work.frozen & params.keys():
        grad = params[name].grad
        count = 0 if grad is None else int(local(grad).count_nonzero())
        if count:
            trained = Undisciplined(Habit.TRAINS_FROZEN, count)
            tensor = str(InPass(name, Pass(0, step)))
            run.report.mismatches.append(
                Mismatch(tensor, Kind.DISCIPLINE, run.rank, detail=trained)
            )


@torch.no_grad()
def _overflow(run: Any, params: Mapping[str, nn.Parameter], step: int) -> None:
    """An element of a gradient is made infinite, on the ranks that have it."""
    due = run.problem.overflow
    if due is None or due.step != step or (grad := params[due.name].grad) is None:
        return
    hit = torch.zeros(run.problem.params[due.name].shape, dtype=torch.bool)
    hit.view(-1)[due.element] = True
    own = run.judge.part(str(InPass(due.name, Pass(0, step))), hit, grad)
    if own is not None:
        local(grad)[own.to(grad.device)] = torch.inf


def _clip(run: Any, module: nn.Module, most: float, step: int) -> None:
    """The candidate clips its gradients, and says what their norm was."""
    run.recorder.phase, run.report.updates = Phase.STEP, True
    clip = run.parts.get("clip") or partial(_clipped, order=run.parts["norm"].order)
    own = norming.parts(run, step)  # clipping writes into the gradients
    run.recorder.clips = True
    with run.recorder:
        norm = _as_norm(clip(module, run.mesh, most))
    run.recorder.clips = False
    norming.judge(run, str(InPass(NORM, Pass(0, step))), norm, own)


def _clipped(module: nn.Module, mesh: DeviceMesh, most: float, *, order: float) -> Tensor:
    """As `Check(clip=…)`, by torch's own function: of DTensors it is the norm over all ranks."""
    return torch.nn.utils.clip_grad_norm_(module.parameters(), most, order)


def _as_norm(given: Any) -> Tensor:
    """What `clip` returned, a number or a tensor of one element, as a plain tensor [].

    Raises:
        InvalidArgument: it is something else.
    """
    if isinstance(given, Tensor) and given.numel() == 1:
        whole = given.full_tensor() if is_dtensor(given) else given  # type: ignore[attr-defined]
        return whole.detach().reshape(())
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return torch.tensor(float(given), dtype=torch.float64)
    raise InvalidArgument(
        f"the check's clip returned {shown(given)}; return the norm of all gradients, a number or "
        "a tensor of one element"
    )


def _step(run: Any, module: Any, params: Mapping[str, nn.Parameter]) -> None:
    """A step of plain SGD, and one more forward under the parameters that it leaves."""
    run.recorder.phase = Phase.STEP
    sgd_step(params, run.problem.terms)
    for name, param in params.items():
        run.judge.check(Kind.PARAM, name, param.detach())
    with torch.no_grad():
        leaves = run.share.leaves(run.problem.inputs[0])
        run.masks.begin(STEP)
        with run.watching(module, STEP), around(run):
            outputs = run.forward(module, leaves)
        run.masks.end()
        run.judge.outputs(outputs, STEP)
