# Entry points only; what they do is in the package. `make` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# A worker that has died ends the run: pytest-xdist 3.8 hangs when it starts another.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --max-worker-restart 0
SAMPLER ?= in_order
WORKERS ?= 2
BASE ?= origin/main
# Barrier, owners, run and bundle, and every counterexample on the code.
CORE = $(wildcard $(patsubst %,tests/unit/test_%.py,barrier* buffer bundle_* config \
  custom_sampler ending ledger loader own_loop permits pinning restore_types run_directory \
  samplers spare_pool waiting watchdog)) tests/replay/test_counterexamples.py
# The Python files that differ from where this branch left BASE, new ones too.
CHANGED = $(shell { git diff --name-only --diff-filter=d \
  $$(git merge-base HEAD $(BASE) 2>/dev/null || git rev-parse HEAD) -- '*.py'; \
  git ls-files --others --exclude-standard -- '*.py'; } | sort -u)

.DEFAULT_GOAL := help
.PHONY: help setup demo check quick test test-fast test-long suites bench mutation docs lint format clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	  "Python 3.11 or newer is needed, and %s is %d.%d; say which one to take: " \
	  "make setup PYTHON=python3.11" % (sys.executable, v[0], v[1]))'
	@echo "Setting up $(VENV): a few minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(READY) ## Make the virtual environment in .venv

demo: $(READY) ## Train, kill the controller three times, resume, audit (SAMPLER=all for all four)
	$(BIN)/cutlock demo --sampler $(SAMPLER)

check: $(READY) ## Check the protocol with TLC: the models, then the mutants that must fall
	$(BIN)/cutlock check
	$(BIN)/cutlock mutants --traces traces/counterexamples

quick: $(READY) ## The inner loop: lint what changed, test the core, replay the counterexamples
	$(if $(CHANGED),$(BIN)/ruff check $(CHANGED))
	$(if $(CHANGED),$(BIN)/ruff format --check $(CHANGED))
	$(BIN)/lint-imports
	$(PYTEST) -q -m 'not slow and not real and not tlc and not long' $(CORE)

test: lint ## Run the linters and the whole test suite, real Ray and TransferQueue included (WORKERS=2)
	$(PYTEST) -m 'not long'

test-fast: $(READY) ## Run the tests that need no Ray
	$(PYTEST) -m 'not real and not long'

test-long: $(READY) ## Run everything, the long tests too
	$(BIN)/python -m pytest

suites: $(READY) ## Run what `make test` runs and write the seconds of each suite into tests/README.md
	$(PYTEST) -m 'not long' --suites tests/README.md

bench: $(READY) ## Measure every cost beside its alternative and write docs/performance.md (an hour)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/cutlock bench --keep --page docs

mutation: $(READY) ## Show that the tests notice every mutant of the code (see docs/mutation.md)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[mutation]'
	$(BIN)/python -m tests.mutation

docs: $(READY) ## Build the documentation into out/site, every warning an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open out/site/index.html"

lint: $(READY) ## Check style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
