# Needs git, make and Python 3.11 or 3.12 on Linux, x86_64: everything else is installed into .venv by `make setup`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# A process for each processor, 8 at most, and a test file to each in turn, the long ones first. With ARGS a single one:
# -s and --pdb need it.
PARALLEL = $(if $(ARGS),,--numprocesses=auto --maxprocesses=8 --dist=loadfile --no-loadscope-reorder)
ROOMS := api operator training inference client
ARGS ?=

.PHONY: help
help: ## print this list
	@echo "make <target>   (ARGS=… is passed on: make test ARGS='-k store'; PYTHON=… names the interpreter for setup)"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## make or update .venv from the lock (other targets do it by themselves)
	@tools/environment.sh

.PHONY: demo
demo: setup ## train the 8-qubit QCNN on two local workers, then run the inference program
	@$(BIN)/qmljob run manifests/samples/qcnn.yaml $(ARGS)

.PHONY: test
test: setup ## run the unit and integration tests
	@$(PYTEST) $(PARALLEL) -m "not slow" tests/integration tests/unit $(ARGS)

.PHONY: test-unit
test-unit: setup ## run the unit tests only
	@$(PYTEST) $(PARALLEL) -m "not slow" tests/unit $(ARGS)

.PHONY: test-slow
test-slow: setup ## run the slow tier only: many seeded schedules of kills, long trainings
	@$(PYTEST) $(PARALLEL) -m slow tests/integration tests/unit $(ARGS)

.PHONY: chaos
chaos: setup ## every fault at every call of every scenario of the operator (ARGS='scenario=fail call=… fault=…': one case)
	@PYTHONPATH=tests $(BIN)/python -m support.chaos $(ARGS)

.PHONY: verify
verify: verify-format verify-lint verify-types verify-layers verify-locks verify-manifests verify-text ## check format, lint, types, layers, locks, generated files and wording; changes nothing

.PHONY: verify-format
verify-format: setup
	@echo "format"; report=$$($(BIN)/ruff format --check --output-format concise . 2>&1) || { echo "$$report" >&2; echo "make format repairs it" >&2; exit 1; }

.PHONY: verify-lint
verify-lint: setup
	@echo "lint"; $(BIN)/ruff check --quiet --output-format concise .

.PHONY: verify-types
verify-types: setup
	@echo "types"; $(BIN)/mypy --no-error-summary

.PHONY: verify-layers
verify-layers: setup
	@echo "layers"; report=$$($(BIN)/lint-imports --no-logo --no-cache) || { echo "$$report"; exit 1; }

.PHONY: verify-locks
verify-locks: setup
	@echo "locks"; $(BIN)/python tools/locks.py --check

.PHONY: verify-manifests
verify-manifests: setup
	@echo "manifests"; $(BIN)/python tools/manifests.py --check

.PHONY: verify-text
verify-text: setup
	@echo "text"; $(BIN)/python tools/text.py

.PHONY: format
format: setup ## format the code and repair what the linter can repair
	@$(BIN)/ruff check --quiet --fix-only .; $(BIN)/ruff format --quiet .

.PHONY: manifests
manifests: setup ## generate the CRD and docs/api.md anew from the API's types
	@$(BIN)/python tools/manifests.py

.PHONY: lock
lock: setup ## compile the locks anew, keeping their pins (UPGRADE=1: the newest versions)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/locks.py $(if $(UPGRADE),--upgrade)

include tools/cluster.mk

.PHONY: clean
clean: ## remove .venv and all caches; keeps runs/
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(ROOMS) tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
