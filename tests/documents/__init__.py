"""The pages for readers as data: their blocks, links and shell lines; and a run of what they say.

A page's blocks build on each other, in order, in one namespace and one folder:

    ```python     runs as it stands. One whose first line is `# name.py` is a file, and is run by
                  the block that imports it or the line that names it
    ```sh         commands, one per line, that must end with exit code 0
    ```console    commands (`$ …`), each with what it prints; a line `…` stands for any lines
    ```json       is parsed
    ```yaml       is a file of `docs/examples/ci`, and what it runs is checked (`test_ci.py`)
    ```text       neither: a layout of lines, a part of somebody else's code

A command whose comment says that it takes minutes, or needs what may not be here (a network, a
GPU), is checked and not run.

`python -m tests.documents [PAGE …]` follows the pages and writes what their commands print into
them.
"""

from __future__ import annotations

from pathlib import Path

from tests import ROOT

#: Where each page with something to run is followed: `unit` for pages that start no ranks,
#: `released` for those that run packages which the environment does not have (`pytest -m sweep`
#: runs them where these are installed).
FOLLOWED = {
    "README.md": "ranks",
    "docs/adapters.md": "catalogue",
    "docs/checks.md": "ranks",
    "docs/ci.md": "ranks",
    "docs/cli.md": "ranks",
    "docs/comparison.md": "released",
    "docs/findings/README.md": "unit",
    "docs/findings/fla-path-attention-values.md": "released",
    "docs/findings/fla-powglu-subnormal.md": "released",
    "docs/findings/fla-rwkv7-mixing-input.md": "released",
    "docs/findings/fla-rwkv7-mixing-length.md": "released",
    "docs/findings/fla-second-backward.md": "released",
    "docs/findings/fla-sequence-ids.md": "released",
    "docs/findings/fla-wall-attention-decay.md": "released",
    "docs/findings/fla-wall-attention-float16.md": "released",
    "docs/findings/liger-cross-entropy-strided-logits.md": "released",
    "docs/findings/liger-fused-linear-frozen-input.md": "released",
    "docs/findings/liger-group-norm-variance.md": "released",
    "docs/findings/liger-jsd-transposed-weight.md": "released",
    "docs/findings/liger-luspo-padding.md": "released",
    "docs/findings/liger-luspo-strides.md": "released",
    "docs/findings/liger-rope-one-position.md": "released",
    "docs/findings/liger-second-backward.md": "released",
    "docs/findings/liger-tiled-mlp-frozen-input.md": "released",
    "docs/findings/liger-tiled-mlp-strided-input.md": "released",
    "docs/findings/liger-vocab-parallel-second-backward.md": "released",
    "docs/findings/liger-vocab-parallel-smoothing.md": "released",
    "docs/findings/megatron-core-attention-sink-norm.md": "catalogue",
    "docs/findings/megatron-core-label-smoothing.md": "catalogue",
    "docs/findings/megatron-core-logits-overwritten.md": "catalogue",
    "docs/findings/megatron-core-lost-all-reduce.md": "catalogue",
    "docs/findings/megatron-core-router-without-te.md": "catalogue",
    "docs/findings/torch-fewer-rows-than-ranks.md": "catalogue",
    "docs/findings/torch-sharded-dim-of-one.md": "catalogue",
    "docs/findings/torch-uneven-colwise-rowwise.md": "catalogue",
    "docs/findings/transformers-empty-vocabulary-shard.md": "catalogue",
    "docs/findings/transformers-gradient-accumulation.md": "catalogue",
    "docs/findings/transformers-hrm-text-loading.md": "catalogue",
    "docs/findings/transformers-tp-plans.md": "catalogue",
    "docs/findings/unsloth-lora-second-backward.md": "released",
    "docs/fuzz.md": "ranks",
    "docs/init.md": "ranks",
    "docs/kernels.md": "ranks",
    "docs/orders.md": "ranks",
    "docs/plans.md": "ranks",
    "docs/reports.md": "ranks",
    "docs/specs.md": "ranks",
    "docs/start.md": "ranks",
    "docs/training.md": "ranks",
}


def pages() -> dict[str, Path]:
    """Every page by its name, the README first."""
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")
    top = [ROOT / name for name in names]
    found = [*top, *sorted((ROOT / "docs").rglob("*.md"))]
    return {page.relative_to(ROOT).as_posix(): page for page in found}


def followed_in(folder: str) -> list[str]:
    """The pages that a folder of tests follows."""
    return [page for page, where in FOLLOWED.items() if where == folder]
