# SPDX-License-Identifier: Apache-2.0
# The commands of this project, the same in CI and by hand. `make help` lists them.

PYTHON ?= python3
VENV ?= .venv
# What to install beside the package; see pyproject.toml.
EXTRAS ?= cuda,inspect,test,dev
PYTEST_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What the installation depends on: dependencies, build files and the native sources.
INSTALL_INPUTS := $(wildcard pyproject.toml setup.py CMakeLists.txt) $(shell find src -type f 2>/dev/null)

# Without a GPU the tests need torch for references only; the CPU build is enough. With one, a torch that can use it
# is expected to be there already and is taken over from the system's Python.
TORCH ?= torch==2.13.0
HAS_GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo 1)
VENV_FLAGS := $(if $(HAS_GPU),--system-site-packages)

.DEFAULT_GOAL := help
.PHONY: help setup run test test-gpu mutation check format docs clean

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##[[:space:]]*/|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP)  ## make .venv and install the package with its development tools

$(BIN)/python:
	$(PYTHON) -m venv $(VENV_FLAGS) $(VENV)

$(STAMP): $(BIN)/python $(INSTALL_INPUTS)
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install -q "$(TORCH)"
	$(BIN)/python -m pip install -q -e ".[$(EXTRAS)]"
	@touch $@

run: $(STAMP)  ## compile, show, run and check the attention example, end to end
	$(BIN)/python examples/flash_attention/walkthrough.py

test: $(STAMP)  ## every test that needs no GPU
	$(BIN)/python -m pytest -q -n 2 -m "not gpu" testing examples $(PYTEST_ARGS)

mutation: $(STAMP)  ## break the synchronisation of kernels in every small way; the simulator must notice (long)
	$(BIN)/python testing/mutation/mutation_suite.py

test-gpu: $(STAMP)  ## the tests that need an sm_90 GPU
	$(BIN)/python -m pytest -q -m gpu testing examples $(PYTEST_ARGS)

check: $(STAMP)  ## style, types and the import order of the rooms
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m pyright tilelang
	$(BIN)/lint-imports

format: $(STAMP)  ## rewrite the sources in the project's style
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

docs: $(STAMP)  ## regenerate the pages of docs/ that are made from the sources
	$(BIN)/python -m tilelang.tools.docs docs

clean:  ## remove what the commands above made, the virtual environment included
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis *.egg-info
