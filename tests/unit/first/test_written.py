"""A first check as text, and what can't be made one, in a line. No ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tpcheck.cli.start import write
from tpcheck.errors import InvalidArgument

HERE = "tests.first_modules"
GIVEN = {"plan": None, "reference": None, "inputs": (), "out": None}


def written(folder: Path, target: str, **given: object) -> tuple[str, tuple[str, ...]]:
    """The file's text and the notes."""
    named = {k: f"{HERE}:{v}" if k in ("plan", "reference") else v for k, v in given.items()}
    options: Any = GIVEN | {"out": folder / "check.py"} | named
    file, notes = write(f"{HERE}:{target}", **options)
    return file.read_text(), notes


UP_DOWN = """\
        params={
            "up.weight": Shard(0),
            "up.bias": Shard(0),
            "down.weight": Shard(1),
        },
"""


def test_a_plan_is_read_from_its_dtensors(tmp_path: Path) -> None:
    text, notes = written(tmp_path, "MLP", plan="PLAN")
    assert UP_DOWN in text and "inputs={" not in text and "outputs={" not in text
    assert 'draw("x", case["batch"], case["seq"], 8)' in text and "degrees" not in text
    assert notes == ()


@pytest.mark.parametrize("inputs", [(), ("x=batch,8",)])
def test_what_forward_takes_by_keyword_alone_is_told(
    tmp_path: Path, inputs: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument, match=r"takes x by keyword alone.*lambda module, inputs"):
        written(tmp_path, "ByKeyword", plan="PLAN", inputs=inputs)


def test_under_sequence_parallelism_the_sequence_is_sharded(tmp_path: Path) -> None:
    text, _ = written(tmp_path, "Normed", plan="SEQUENCE")
    assert UP_DOWN in text and '"seq": strategies.multiples("tp")' in text
    assert '        inputs={\n            "x": Shard(1),' in text
    assert '        outputs={\n            "output": Shard(1),' in text


def test_what_a_plan_leaves_whole_is_declared_and_told(tmp_path: Path) -> None:
    text, notes = written(tmp_path, "Normed", plan="PLAN")
    assert 'WHOLE = ("norm.weight", "norm.bias",)' in text
    assert "tpcheck.Plan(PLAN, whole=WHOLE)" in text
    assert len(notes) == 1 and "norm.weight, norm.bias" in notes[0]


def test_ids_are_integers_and_layers_one_pattern(tmp_path: Path) -> None:
    text, notes = written(tmp_path, "Tokens", plan="GATHERED")
    assert 'draw.integers("ids", 0, 10, case["batch"], case["seq"])' in text
    assert '"layers.*.weight": Shard(0),' in text and "layers.0" not in text
    said = "on ranks that are not there its forward raised RuntimeError: a and b must have same"
    assert notes[0].startswith(said) and notes[0].endswith("inputs and outputs are sharded")


def test_what_code_leaves_whole_and_what_may_be_fused_is_told(tmp_path: Path) -> None:
    text, notes = written(tmp_path, "gated_in_part", reference="Gated")
    layout = text.partition("def layout(case)")[2]
    assert '"gate_up.weight": Shard(0),' in layout and "down.weight" not in layout
    assert [note.partition(";")[0] for note in notes if "whole" in note] == [
        "whole on every rank: down.weight"
    ]
    (skipped,) = [note for note in notes if "skips" in note]
    assert skipped.startswith("its plan's key 'dwn' matches no module: parallelize_module skips it")
    assert [note for note in notes if "may be fused" in note] == [
        f"gate_up.{name} may be fused: where a rank holds a part of each of n blocks, write "
        "Blocks(0, n) in the place of Shard(0), or of blocks of several sizes Blocks(0, ((rows, "
        "Shard(0)), …)), and import it"
        for name in ("weight", "bias")
    ]


def test_an_entry_that_matches_nothing_is_told(tmp_path: Path) -> None:
    _, notes = written(tmp_path, "MLP", plan="MISSPELT")
    assert notes[0].startswith("'dwn' matches no module: the model's root has no 'dwn'; there is d")
    assert notes[1].startswith("up: sharded features (Shard(-1)) that no row split consumes")


def test_a_degree_at_which_forward_does_not_run_is_told(tmp_path: Path) -> None:
    text, notes = written(tmp_path, "InHeads", plan="PLAN")
    assert 'valid=lambda dims: dims["tp"] in (1, 2))' in text
    (told,) = notes
    assert told.startswith("no cases at tp=4: its forward raised ")
    assert "at first_modules.py:" in told


def test_the_file_says_what_is_noted_and_has_cases_where_it_runs(tmp_path: Path) -> None:
    text, notes = written(tmp_path, "InHeads", plan="PLAN")
    head = text.split('"""')[1]
    assert notes and " ".join(head.split()).endswith(f"Note: {' '.join(notes[-1].split())}")
    compile(text, "check.py", "exec")
    assert max(map(len, head.splitlines())) <= 100
    assert 'return strategies.cases(space, dims, valid=lambda dims: dims["tp"] in (1, 2))' in text
    plain, _ = written(tmp_path, "Parallel", out=tmp_path / "plain.py")
    assert "return strategies.cases(space, dims)" in plain  # 3 ranks have 6, 5 and 5 columns


def test_a_degree_that_it_can_not_be_built_at_is_told(tmp_path: Path) -> None:
    _, notes = written(tmp_path, "only_two", reference="MLP")
    (told,) = [note for note in notes if note.startswith("no cases at tp=4: ")]
    assert "ValueError: two ranks" in told


@pytest.mark.parametrize("target", ["Parallel", "by_mesh"])
def test_a_module_of_its_own_is_read_by_its_shapes(tmp_path: Path, target: str) -> None:
    text, notes = written(tmp_path, target)
    assert UP_DOWN in text and "tpcheck.Relation(spec, candidate=candidate)" in text
    given = 'mesh["tp"]' if target == "by_mesh" else 'mesh["tp"].get_group()'
    assert f"return {target}({given})" in text
    assert [note.partition(":")[0] for note in notes] == ["its reference is itself on one rank"]
    (tmp_path / "check.py").unlink()
    held, notes = written(tmp_path, target, reference="MLP")
    assert "tpcheck.Check(spec, candidate=candidate)" in held and "lambda case: MLP()" in held
    assert notes == ()


def test_a_model_of_transformers_is_read_from_its_own_plan(tmp_path: Path) -> None:
    text, _ = written(tmp_path, "llama")
    assert '"model.layers.*.self_attn.o_proj.weight": Shard(1),' in text
    assert '"model.layers.*.mlp.up_proj.weight": Shard(0),' in text and "norm" not in text
    assert '"vocab": 32' in text and 'dims["tp"] in (1, 2))' in text  # two K/V heads


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("Spread", 'mesh["tp"].get_group()'),
        ("annotated", 'mesh["tp"].get_group()'),
        ("over", 'mesh["tp"]'),
        ("on_mesh", 'mesh["tp"]'),
    ],
)
def test_what_an_argument_is_is_told_by_its_annotation_or_by_what_is_done_with_it(
    tmp_path: Path, target: str, given: str
) -> None:
    text, notes = written(tmp_path, target)
    assert UP_DOWN in text and f"return {target}({given})" in text
    assert not [note for note in notes if "taken for" in note]


def test_an_argument_may_be_given_by_its_name_and_be_left_out(tmp_path: Path) -> None:
    text, _ = written(tmp_path, "ByName")
    assert UP_DOWN in text and 'return ByName(tp_group=mesh["tp"].get_group())' in text
    (tmp_path / "check.py").unlink()
    text, _ = written(tmp_path, "perhaps")
    assert UP_DOWN in text and 'return perhaps(mesh=mesh["tp"])' in text
    assert "reference=lambda case: perhaps()," in text, "whole without it"
    (tmp_path / "check.py").unlink()
    text, _ = written(tmp_path, "perhaps", plan="PLAN")
    assert UP_DOWN in text and "lambda case: perhaps()," in text
    (tmp_path / "check.py").unlink()
    text, _ = written(tmp_path, "Parallel", reference="perhaps")
    assert "reference=lambda case: perhaps()," in text


def test_what_nothing_tells_is_assumed_and_said(tmp_path: Path) -> None:
    text, notes = written(tmp_path, "Split")
    assert 'return Split(mesh["tp"])' in text
    assert [note for note in notes if note.startswith("ranks is taken for a mesh; where it is")]
    (tmp_path / "check.py").unlink()
    text, notes = written(tmp_path, "SplitOver")
    assert 'return SplitOver(mesh["tp"].get_group())' in text, "its name says it"
    assert not [note for note in notes if "taken for" in note]


def test_a_configuration_of_released_sizes_is_made_small(tmp_path: Path) -> None:
    file, notes = write("transformers:LlamaConfig", None, None, (), tmp_path / "check.py")
    text = file.read_text()
    assert "    hidden_size=32,\n" in text and '"vocab": SMALL["vocab_size"]' in text
    made = "AutoModelForCausalLM.from_config(transformers.resized(LlamaConfig(), SMALL))"
    assert f"return {made}" in text
    (note,) = notes
    assert note.startswith("transformers:LlamaConfig has 6,738,415,616 parameters, and every rank")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("BertConfig", "^BertLMHeadModel ships no tp_plan: name a function that makes it, and --p"),
        ("CLIPVisionConfig", "^CLIPVisionConfig has no vocab_size: it takes no token ids$"),
        ("Gemma3Config", "takes more than token ids: name Gemma3TextConfig$"),
        ("AutoConfig", "AutoConfig is designed to be instantiated using"),
    ],
)
def test_a_configuration_without_a_check_is_a_line(tmp_path: Path, target: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        write(f"transformers:{target}", None, None, (), tmp_path / "check.py")
    assert len(str(caught.value).splitlines()) == 1


def test_a_class_of_models_is_built_of_its_configuration(tmp_path: Path) -> None:
    file, _ = write("transformers:LlamaForCausalLM", None, None, (), tmp_path / "check.py")
    cls = "LlamaForCausalLM"
    made = f"{cls}(transformers.resized({cls}.config_class(), SMALL))"
    assert f"return {made}" in file.read_text() and "AutoModel" not in file.read_text()


def test_inputs_can_be_told(tmp_path: Path) -> None:
    told = ("x=batch,3,8", "y=8:5")
    text, _ = written(tmp_path, "MLP", plan="PLAN", inputs=told[:1])
    assert 'draw("x", case["batch"], 3, 8)' in text
    with pytest.raises(InvalidArgument, match=r"forward of tests.*:Odd takes .*--input x=batch,8"):
        written(tmp_path, "Odd", plan="PLAN", out=tmp_path / "odd.py")


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("MLP", {}, "nothing says how it is sharded: give --plan"),
        ("MLP", {"reference": "MLP"}, "MLP takes none: it is the reference"),
        ("Parallel", {"plan": "PLAN"}, "Parallel takes a group: leave one of them out"),
        ("Parallel", {"reference": "by_mesh"}, "by_mesh takes a mesh"),
        ("Parallel", {"reference": "Normed"}, "has no 'norm.weight', which the reference has"),
        ("sized", {}, "needs hidden, inner: name a function without arguments"),
        ("of_hidden", {}, "needs hidden, which is annotated as int, neither a mesh nor a process"),
        ("of_sizes", {}, "sizes of .*: given a mesh, .* AttributeError.*; given a process group, "
         ".*; name a function without arguments"),
        ("of_layers", {}, "layers of .*:of_layers is not said to be a mesh or a process group"),
        ("huge", {"plan": "PLAN"}, "huge makes more than .* GB of tensors, and its check would"),
        ("many", {}, "many makes more than .* GB of tensors, and its check would"),
        ("number", {}, "number makes a int, and nothing says"),
        ("number", {"plan": "PLAN"}, "number returned a int, not an nn.Module"),
        ("raises", {}, "raises at tp=1 raised ValueError: heads=3 do not divide"),
        ("PLAN", {}, "PLAN is a dict: name a function or class"),
        ("llama", {"inputs": ("x=8",)}, "takes token ids; leave it out"),
        ("MLP", {"plan": "PLAN", "inputs": ("x",)}, "'x' is not NAME=SIZES"),
        ("MLP", {"plan": "PLAN", "inputs": ("x=8:0",)}, "'x=8:0' is not NAME=SIZES"),
        ("MLP", {"plan": "PLAN", "inputs": ("x=-8",)}, "'x=-8' is not NAME=SIZES"),
        ("MLP", {"plan": "PLAN", "inputs": ("x=batch,0",)}, "'x=batch,0' is not NAME=SIZES"),
        ("MLP", {"plan": "number"}, "plan"),
        ("nothing", {}, "has no 'nothing'"),
    ],
)  # fmt: skip
def test_what_can_not_be_one_is_a_line(
    tmp_path: Path, target: str, given: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        written(tmp_path, target, **given)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "check.py").exists()


def test_a_file_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "check_mlp.py").write_text("mine")
    with pytest.raises(InvalidArgument, match=r"check_mlp\.py is there already: move it away"):
        write(f"{HERE}:MLP", f"{HERE}:PLAN", None, (), None)
    assert (tmp_path / "check_mlp.py").read_text() == "mine"
    for out, words in (("check.txt", "is not a Python file"), ("no/check.py", "can't write no/")):
        with pytest.raises(InvalidArgument, match=words):
            write(f"{HERE}:MLP", f"{HERE}:PLAN", None, (), Path(out))


def test_a_file_with_a_name_of_its_own_is_imported_by_that(tmp_path: Path) -> None:
    source = (ROOT / "tests" / "first_modules.py").read_text()
    (tmp_path / "mine.py").write_text(source)
    mine = f"{tmp_path}/mine.py"
    file, _ = write(f"{mine}:MLP", f"{mine}:PLAN", None, (), tmp_path / "c.py")
    assert "\nfrom mine import MLP, PLAN\n" in file.read_text()


@pytest.mark.parametrize("target", ["MLP", "Parallel"])
@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            ("x=batch,9",),
            r"forward of x \[12, 9\] raised RuntimeError: .*give --input as it takes it",
        ),
        (("x=batch,8", "y=batch,8"), r"forward of x \[12, 8\], y \[12, 8\] raised TypeError"),
    ],
)
def test_inputs_that_forward_does_not_take_are_told_in_a_line(
    target: str, inputs: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    given = {"plan": "PLAN"} if target == "MLP" else {"reference": "MLP"}
    with pytest.raises(InvalidArgument, match=words):
        written(tmp_path, target, inputs=inputs, **given)
