"""Drawing: numbers depend on the seed and the name and on nothing else; none is at its default."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tpcheck.case import DTYPES, Case
from tpcheck.tensors import draw as drawing
from tpcheck.tensors.draw import Draw, torch_dtype

CASE = Case(dims={"n": 4}, seed=3)


def test_the_same_seed_scope_and_name_give_the_same_numbers() -> None:
    assert torch.equal(Draw(CASE, "input", 0)("x", 5), Draw(CASE, "input", 0)("x", 5))


@pytest.mark.parametrize(
    "other",
    [
        Draw(replace(CASE, seed=4), "input", 0)("x", 5),
        Draw(CASE, "input", 1)("x", 5),
        Draw(CASE, "state", 0)("x", 5),
        Draw(CASE, "input", 0)("y", 5),
    ],
    ids=["seed", "microbatch", "scope", "name"],
)
def test_another_seed_scope_or_name_gives_other_numbers(other: torch.Tensor) -> None:
    assert not (Draw(CASE, "input", 0)("x", 5) == other).any()


@pytest.mark.parametrize(
    "change", [{"mesh": {"dp": 2, "tp": 4}}, {"dtype": "bfloat16"}, {"dims": {}}, {"step": True}]
)
def test_mesh_dtype_and_dims_do_not_change_the_numbers(change: dict[str, object]) -> None:
    other = replace(CASE, **change)  # type: ignore[arg-type]
    assert torch.equal(Draw(CASE)("x", 5), Draw(other)("x", 5))


def test_drawing_neither_reads_nor_moves_the_global_generator() -> None:
    torch.manual_seed(1)
    first, before = Draw(CASE)("x", 3), torch.random.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(Draw(CASE)("x", 3), first)
    torch.manual_seed(1)
    Draw(CASE)("x", 3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_order_of_drawing_does_not_matter() -> None:
    one, two = Draw(CASE), Draw(CASE)
    first = {name: one(name, 3) for name in ("x", "y")}
    second = {name: two(name, 3) for name in ("y", "x")}
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_numbers_are_drawn_in_float64_in_their_range() -> None:
    draw = Draw(CASE)
    uniform, integers = draw.uniform("u", -2.0, 3.0, 500), draw.integers("i", -1, 4, 500)
    assert draw("x", 2).dtype == uniform.dtype == torch.float64
    assert uniform.min() >= -2 and uniform.max() < 3
    assert integers.dtype == torch.int64 and set(integers.tolist()) == {-1, 0, 1, 2, 3}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("default", [torch.zeros, torch.ones])
def test_no_vector_matrix_or_buffer_is_left_at_zero_or_one(dtype: str, default: object) -> None:
    case = replace(CASE, dtype=dtype)
    for shape, buffer in (((40,), False), ((8, 8), False), ((40,), True)):
        full = drawing.state(Draw(case), "p", default(shape), buffer=buffer)  # type: ignore[operator]
        rounded = full.to(torch_dtype(case)).double()
        assert (rounded != 0).all() and (rounded == 1).double().mean() < 0.1
        assert rounded.unique().numel() > 20


def test_vectors_are_of_either_sign_and_far_from_zero() -> None:
    vector = drawing.state(Draw(CASE), "norm.weight", torch.ones(200), buffer=False)
    assert (vector.abs() >= 0.5).all() and (vector.abs() < 1.5).all()
    assert 50 < int((vector < 0).sum()) < 150


def test_matrices_keep_products_near_one() -> None:
    weight = drawing.state(Draw(CASE), "w", torch.zeros(64, 256), buffer=False)
    product = torch.randn(64, 256, dtype=torch.float64) @ weight.T
    assert 0.8 < float(product.std()) < 1.25


def test_float_buffers_are_positive_and_integer_buffers_kept() -> None:
    variance = drawing.state(Draw(CASE), "var", torch.ones(50), buffer=True)
    assert (variance >= 0.5).all()
    steps = torch.arange(4)
    kept = drawing.state(Draw(CASE), "ids", steps, buffer=True)
    assert torch.equal(kept, steps) and kept is not steps


@pytest.mark.parametrize("buffer", [False, True])
def test_a_scalar_parameter_is_drawn_too(buffer: bool) -> None:
    drawn = drawing.state(Draw(CASE), "scale", torch.tensor(1.0), buffer=buffer)
    assert drawn.shape == () and 0.5 <= abs(float(drawn)) < 1.5


def test_a_scalar_loss_gets_a_cotangent() -> None:
    assert drawing.cotangent(Draw(CASE), "loss", torch.tensor(1.0)).shape == ()


def test_cotangents_differ_in_every_element_so_a_permuted_slice_shows() -> None:
    seed = drawing.cotangent(Draw(CASE), "y", torch.zeros(6, 4))
    assert seed.shape == (6, 4) and seed.unique().numel() == 24


def test_many_numbers_are_drawn_as_few_are_in_their_own_shape_and_by_name() -> None:
    draw = Draw(CASE, "input", 0)
    size = (2, drawing.MANY)
    x, y = draw("x", *size), draw("y", *size)
    assert x.shape == size and x.dtype == torch.float64 and torch.equal(draw("x", *size), x)
    assert not torch.equal(x, y) and not torch.equal(Draw(CASE, "input", 1)("x", *size), x)
    assert not torch.equal(x[0], x[1])
    # standard normal: 0.27 % are beyond 3
    for own in (x, y, draw("few", drawing.MANY - 1)):
        assert abs(float(own.mean())) < 0.05 and abs(float(own.std()) - 1.0) < 0.02
        assert 0.001 < float((own.abs() > 3.0).double().mean()) < 0.005
