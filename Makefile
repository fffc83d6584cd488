# Two commands do everything on a fresh machine: `make verify` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup verify verify-frameworks test lint format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "setuptools>=77" torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[transformers,megatron,bench,test,dev]"
	touch $(STAMP)

verify: setup
	$(BIN)/tpcheck verify properties

# plans, DTensor, Megatron-core, compositions: minutes
verify-frameworks: setup
	$(BIN)/tpcheck verify properties/_frameworks --examples 6

test: setup lint
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/tpcheck bench

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .tpcheck
