# Two commands do everything on a fresh machine: `make verify` and `make test`.
# `make wheel` builds what `pip install` takes.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# the suite starts a thousand processes: modules are compiled once, and not in each of them
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup verify verify-frameworks verify-gpu adapters test suite test-fast sweep torture lint format bench site wheel clean

setup: $(STAMP)

# modules are compiled when they are first imported: most of the 12,000 never are
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) "setuptools>=77" torch
	$(PIP) --editable ".[transformers,megatron,kernels,bench,test,docs,dev]"
	touch $(STAMP)

# a thousand cases; without the option, nearly twice as many
verify: setup
	$(BIN)/tpcheck verify properties --examples 11

# plans, DTensor, Megatron-core, compositions: minutes
verify-frameworks: setup
	$(BIN)/tpcheck verify --examples 6 \
		$(filter-out %/expert_fsdp.py,$(wildcard properties/_frameworks/*.py))
	$(BIN)/tpcheck verify --examples 6 --tp 2 --ranks 8 properties/_frameworks/expert_fsdp.py

# beside each other: mypy takes one core
test: setup
	$(MAKE) --jobs 2 lint suite

suite: setup
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal

# what is too long for every run: every mutant and its name, the pages of findings, all scripts
sweep: setup
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal -m sweep

# what starts no ranks: for every save
test-fast: setup
	$(BIN)/python -m pytest --numprocesses 2 tests/unit

# faults, deaths and small disks, and what becomes of others' verdicts: half an hour
torture: setup
	$(BIN)/python -m tests.catalogue.torture

# the adapters under six releases of transformers and other frameworks, and our kernels under those
# of Triton, an environment each: an hour
adapters: setup
	$(BIN)/python -m tests.catalogue.adapters

# all there is to do once a GPU is at hand; without one, what it needs
verify-gpu: setup
	$(BIN)/python -m tests.catalogue.gpu

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/tpcheck bench

# docs/ as pages, in site/: open site/index.html
site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: setup
	rm -rf build  # what an earlier build left there would be in the wheel, too
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .tpcheck
