.DEFAULT_GOAL := help
PYTHON ?= python3.11
PIP_FLAGS ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
SOURCES := src sandbox tests examples bench
export HF_HUB_DISABLE_TELEMETRY := 1
# For pipefail, where a pipe shows the progress of what may fail.
SHELL := bash
# Of pip's many lines those that take time: what is large, and the installing at the end.
# mawk reads in blocks unless it is told not to.
AWK = awk $(shell awk -W version 2>/dev/null </dev/null | grep -q mawk && echo -W interactive)
LARGE = $(AWK) '/^ *(Downloading|Using cached) / && !/metadata/ { split($$0, size, /[()]/); \
	split($$0, name, /(Downloading|Using cached) /); sub(/.*\//, "", name[2]); sub(/-[0-9].*/, "", name[2]); \
	if (size[2] == "" || (size[2] ~ /MB/ && size[2] + 0 >= 5)) { print "  " name[2] "  " size[2]; fflush() } } \
	/^Installing collected packages/ { print "  installing " NF - 3 " packages, the last minute or two"; fflush() }'

.PHONY: help setup demo test test-sandbox soak check bench docs clean

help: ## Show what each target does
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

# The stamp makes a second `make` install and download nothing until the pins change.
$(VENV)/.stamp: pyproject.toml sandbox/pyproject.toml constraints.txt
	@echo "Installing Strop with torch and all that its tests need into $(VENV): 3 to 9 minutes, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e ./sandbox -e '.[dev]' | $(LARGE)
	@touch $@
	@echo "Installed."

setup: $(VENV)/.stamp ## Make .venv with everything, once

demo: setup ## Train a small calculator agent and ask it questions (ARGS="--steps 3 --seed 7 --out demo")
	@$(BIN)/strop demo $(ARGS)

test: setup ## Run the tests of Strop
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

test-sandbox: setup ## Run the tests of the sandbox: attacks, languages, benchmarks, clients
	cd sandbox && $(CURDIR)/$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

soak: setup ## Kill, fill and repeat for half an hour; appends to docs/log.md (ARGS="--share 0.2")
	PYTHONPATH=tests $(BIN)/python -m soak $(ARGS)

check: setup ## Format, lint, types, import contracts, documents that are made from code
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup ## Measure against TRL, transformers and vLLM side by side; appends to docs/log.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e ./sandbox -e '.[bench]'
	bash bench/setup_vllm.sh
	$(BIN)/python -m bench $(ARGS)

docs: setup ## Write the documents and catalogues that are made from code
	$(BIN)/python -m strop.locales.catalogue
	$(BIN)/python -m strop.tracing.metrics_doc docs/metrics.md
	$(BIN)/python -m strop.config.hyper_parameters_doc docs/hyper_parameters.md
	$(BIN)/python -m strop.functions.rewards_doc docs/rewards.md
	$(BIN)/python -m strop.cli.api_document docs/api/openapi.json
	STROP_LANG=en $(BIN)/python -m typer strop.cli.commands utils docs --name strop --output docs/cli.md

clean: ## Remove the environment, caches and the demo's output
	rm -rf $(VENV) demo build dist .pytest_cache .ruff_cache .hypothesis src/*.egg-info \
		sandbox/build sandbox/dist sandbox/.pytest_cache sandbox/src/*.egg-info
