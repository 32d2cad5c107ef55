# Every target makes the environment it needs first; a second run starts at once.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.PHONY: help demo test quick check format bench bench-core clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "==> making the environment in $(VENV) (a minute or two, once)"
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"dphist needs Python 3.11 or later; {sys.executable} is {v[0]}.{v[1]}. Run: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "==> adding what the tests and checks need (once)"
	@$(PIP) '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "==> adding the peers that the benchmarks measure against (once)"
	@$(PIP) '.[dev,bench]'
	@touch $@

demo: $(VENV)/.demo  ## publish 336,776 real flights: release, picture and ledger in dphist-demo/
	@echo "==> dphist demo"
	@$(BIN)/dphist demo

test: $(VENV)/.dev  ## run every test, the slow statistical ones too
	@echo "==> pytest, all tests on all cores"
	@$(BIN)/python -m pytest -q -n auto

quick: $(VENV)/.dev  ## run the tests that take no time
	@$(BIN)/python -m pytest -q -n auto -m "not slow"

check: $(VENV)/.dev  ## lint, format, types, and the import contracts of the privacy boundary
	@echo "==> ruff"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> import contracts"
	@$(BIN)/lint-imports

format: $(VENV)/.dev  ## put the code into shape
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: bench-core  ## every benchmark

bench-core: $(VENV)/.bench  ## the sampler, identity, imports and the ledger, one JSON line per figure
	@$(BIN)/python -m dphist.bench.core

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
