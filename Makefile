# Every target makes the environment it needs first; a second run starts at once.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo)
PIP    := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.DEFAULT_GOAL := help
# Whatever the shell says: the hundreds of processes of the tests must not compile the same modules each.
test test-long quick test-engines test-studio test-lowest lowest-engines: export PYTHONDONTWRITEBYTECODE =
.PHONY: help demo test test-engines test-long test-lowest lowest-engines quick mutants check format bench bench-core bench-error bench-rivals bench-partition bench-trees bench-records bench-groups bench-scale bench-accuracy studio-demo studio-page test-studio docs papers papers-quick services clean

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

$(VENV)/.compiled: $(VENV)/.dev
	@echo "==> compiling every method (a minute, once)"
	@$(BIN)/dphist warm
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "==> adding the peers that the benchmarks measure against (once)"
	@$(PIP) '.[dev,bench]'
	@touch $@

$(VENV)/.engines: $(VENV)/.dev
	@echo "==> adding Spark and the PostgreSQL driver (a minute, 0.5 GB, once)"
	@$(PIP) '.[dev,postgres,spark]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@echo "==> adding what builds the documentation (once)"
	@$(PIP) '.[dev,docs]'
	@touch $@

demo: $(VENV)/.demo  ## publish 336,776 real flights: release, picture and ledger in dphist-demo/
	@echo "==> dphist demo"
	@$(BIN)/dphist demo

test: $(VENV)/.dev  ## run the tests, the slow statistical ones too
	@echo "==> pytest, on all cores"
	@$(BIN)/python -m pytest -q -n auto -m "not long"

test-long: $(VENV)/.dev  ## audits, rehearsals and comparisons of the whole catalogue, before a version (minutes)
	@$(BIN)/python -m pytest -q -n auto -m long

quick: $(VENV)/.dev  ## run the tests that take no time
	@$(BIN)/python -m pytest -q -n auto -m "not slow"

test-engines: $(VENV)/.engines  ## the same counts from DuckDB, PostgreSQL and Spark, as far as they are installed
	@$(BIN)/python -m pytest -q tests/records/test_engines.py

TOOLS := $(VENV)/page-tools

$(TOOLS)/.made: Makefile
	@echo "==> adding what builds and checks the studio's page (node and npm needed, once)"
	@mkdir -p $(TOOLS); command -v npm >/dev/null || { echo "no npm here: what needs it is skipped"; exit 0; }; \
	npm install --silent --no-save --no-package-lock --prefix $(TOOLS) esbuild@0.28.2 axe-core@4.14.0
	@touch $@

$(VENV)/.studio: $(VENV)/.demo
	@echo "==> adding what serves the studio (once)"
	@$(PIP) '.[demo,studio]'
	@touch $@

studio-demo: $(VENV)/.studio  ## open the studio on 336,776 real flights (ARGS="--no-browser" prints the address)
	@$(BIN)/dphist studio --demo $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

studio-page: $(TOOLS)/.made  ## build the studio's page from its modules, after a change of them
	@$(PYTHON) .ci/page.py $(TOOLS)/node_modules/.bin/esbuild

test-studio: $(VENV)/.dev $(TOOLS)/.made  ## the studio in a browser (Debian: apt-get install chromium), its server and its security
	@DPHIST_PAGE_TOOLS=$(CURDIR)/$(TOOLS) $(BIN)/python -m pytest -q tests/studio

LOWEST  := .venv-lowest
PIP_LOW := PIP_DISABLE_PIP_VERSION_CHECK=1 $(LOWEST)/bin/python -m pip install --quiet --no-compile --constraint $(LOWEST)/constraints.txt --editable

$(LOWEST)/.engines: pyproject.toml constraints.txt .ci/lowest.py
	@echo "==> making an environment of the lowest versions in $(LOWEST) (a minute or two, once)"
	@$(PYTHON) -m venv $(LOWEST)
	@$(PYTHON) .ci/lowest.py > $(LOWEST)/constraints.txt
	@$(PIP_LOW) '.[frames,postgres]' hypothesis pytest pytest-xdist
	@touch $@

$(LOWEST)/.made: $(LOWEST)/.engines
	@$(PIP_LOW) '.[dev]'
	@touch $@

test-lowest: $(LOWEST)/.made  ## the quick tests with the lowest versions that are allowed
	@NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/compiled $(LOWEST)/bin/python -m pytest -q -n auto -m "not slow"

# What rests on sqlglot, frames, drivers and the command line; DuckDB's lowest version is also the one of `make test`.
OLD := tests/test_lowest.py $(patsubst %,tests/records/test_%.py,engines records times types) \
	tests/cli/test_cli.py::test_methods_and_help_and_version

lowest-engines: $(LOWEST)/.engines  ## the tests of counting with those versions
	@NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/compiled $(LOWEST)/bin/python -m pytest -q -n auto -m "not slow" $(OLD)

check: $(VENV)/.dev  ## lint, format, types, and the import contracts of the privacy boundary
	@echo "==> ruff"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> import contracts"
	@$(BIN)/lint-imports

docs: $(VENV)/.docs  ## build the documentation into site/, to open in a browser without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "==> site/index.html"

format: $(VENV)/.dev  ## put the code into shape
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: bench-core bench-partition bench-records bench-groups bench-scale bench-rivals bench-trees  ## every benchmark

bench-core: $(VENV)/.bench  ## the sampler, identity, imports and the ledger, one JSON line per figure
	@$(BIN)/python -m benchmarks.core

bench-records: $(VENV)/.engines  ## counting files, people, Spark and a grid, one JSON line per figure (minutes)
	@$(BIN)/python -W ignore -m benchmarks.records

bench-groups: $(VENV)/.bench  ## histograms by group: error of every level, whole numbers, 10^8 bins (minutes)
	@$(BIN)/python -m benchmarks.groups

bench-scale: $(VENV)/.bench  ## up to 2^62 bins, listed and dawa2; and the slow corners of all methods, before and now
	@$(BIN)/python -m benchmarks.scale

mutants: $(VENV)/.engines  ## plant privacy bugs one at a time and show the test that kills each (minutes; ARGS="--only NAME")
	@$(BIN)/python tests/mutants/run.py $(ARGS)

services: $(VENV)/.engines  ## install a PostgreSQL server (Debian, as root) and the drivers, for their tests
	@echo "==> apt-get install postgresql: the tests start servers of their own from it"
	@command -v apt-get >/dev/null || { echo "no apt-get here: install a PostgreSQL server yourself, so that initdb is in the PATH"; exit 1; }
	@$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends postgresql
	@command -v java >/dev/null || echo "Spark's tests need Java 17 or later, and there is none: apt-get install openjdk-17-jre-headless"

bench-trees: $(VENV)/.bench  ## trees and DAWA: speed, error, coverage, real histograms, one JSON line per figure (minutes)
	@$(BIN)/python -m benchmarks.trees

bench-partition: $(VENV)/.bench  ## partitions: speed against argsort, exactness, memory, quality on real histograms
	@$(BIN)/python -m benchmarks.partition

bench-error: $(VENV)/.bench  ## coverage of intervals, advice and auto (an hour; DATA=folder of histograms)
	@$(BIN)/python -m benchmarks.error --out results/error $(if $(DATA),--data $(DATA))
	@$(if $(DATA),$(BIN)/python -m benchmarks.advice --data $(DATA) --table results/error/advice.md,echo "advice and auto are judged on real histograms: give DATA=folder" >&2)
	@$(if $(DATA),$(BIN)/python -m benchmarks.auto --data $(DATA) --table results/error/auto.md)

bench-accuracy: $(VENV)/.bench  ## auto: error, regret, coverage, speed (ten minutes; DATA=folder of histograms; ARGS="--parts former")
	@$(BIN)/python -m benchmarks.accuracy --table results/accuracy.md $(if $(DATA),--data $(DATA)) $(ARGS)

bench-rivals: $(VENV)/.bench  ## every rival at 131,072 bins and on a grid of a million cells: time and memory
	@$(BIN)/python -m benchmarks.rivals

PAPERS := sortaki engineering ahp dawa
PAPER   = @for paper in $(PAPERS); do echo "==> $$paper"; $(BIN)/python -m papers $$paper $(1) $(if $(DATA),--data $(DATA)) || exit; done

papers: $(VENV)/.dev  ## rerun every paper's experiments into results/ (hours; DATA=folder of DPBench's files)
	$(call PAPER)

papers-quick: $(VENV)/.dev  ## the same in minutes, into results/NAME-quick
	$(call PAPER,--quick)

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
