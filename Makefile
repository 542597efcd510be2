# Every target works in a fresh clone with only Python 3.11+, a C++ compiler and make: it makes its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/*) CMakeLists.txt pyproject.toml src/ridgeformer/__init__.py  # the last holds the version
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help install reproduce reproduce-from-scratch zoo test test-all fuzz bench bench-training lint sanitize wheel clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'ridgeformer needs Python 3.11 or newer; set PYTHON=/path/to/python'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install 'scikit-build-core>=0.10' 'nanobind>=2.4' 'cmake>=3.18' ninja

$(VENV)/.installed: $(BIN)/python $(NATIVE)
	$(PIP) install --no-build-isolation --editable '.[dev]'
	@$(BIN)/python -c 'import ridgeformer._core' 2>/dev/null || { rm -rf build; \
	  echo 'The native core was not built: this needs a C++17 compiler (g++ or clang++). See `$(BIN)/pip install -v .`'; exit 1; }
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PIP) install --no-build-isolation --editable '.[bench]'
	@touch $@

install: $(VENV)/.installed  ## make .venv and build the native core

# What is needed to compute and to draw, without what is needed to test.
$(VENV)/.plot: $(BIN)/python $(NATIVE)
	$(PIP) install --no-build-isolation --editable '.[plot]'
	@touch $@

reproduce: $(VENV)/.plot  ## the main job: Table 1 beside the paper's, the figures, the report; minutes
	$(BIN)/ridgeformer info
	$(BIN)/ridgeformer table1 --out reproduction
	$(BIN)/ridgeformer figures --out reproduction
	$(BIN)/ridgeformer report --out reproduction
	@echo 'The table, the figures and the report are in reproduction/: open reproduction/report.html'

reproduce-from-scratch: $(VENV)/.plot  ## the same with all 210 models trained first, five seeds, into runs/; about an hour
	$(BIN)/ridgeformer table1 --retrain --runs runs --out reproduction
	$(BIN)/ridgeformer figures --runs runs --out reproduction
	$(BIN)/ridgeformer report --runs runs --out reproduction
	@echo 'The table, the figures and the report are in reproduction/: open reproduction/report.html'

zoo: install  ## ship the models of runs/, which reproduce-from-scratch trained
	$(BIN)/python -m ridgeformer.experiments.ship runs

test: install  ## the tests, a few minutes once installed
	$(BIN)/python -m pytest -q -n auto -m 'not long'

test-all: install  ## all tests, the long ones too
	$(BIN)/python -m pytest -q -n auto

fuzz: install  ## 100,000 damaged files and 100,000 odd calls; at most ten minutes
	$(BIN)/python tests/fuzz.py

bench: $(VENV)/.bench  ## every figure of speed, against PyTorch and JAX (installs both)
	$(BIN)/ridgeformer bench --out benchmarks/latest.json

bench-training: install  ## what training reaches in which time, seeds 0 to 4; half an hour
	$(BIN)/ridgeformer bench --only training --only silence --seeds 5 --out benchmarks/training.json

lint: install  ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sanitize: install  ## the core's tests under the address and undefined-behaviour sanitisers
	$(BIN)/python native/sanitize.py

wheel: install  ## a wheel in dist/
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .

clean:  ## remove everything that was made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
