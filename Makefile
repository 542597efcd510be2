# Every target works in a fresh clone with only Python 3.11+, a C++ compiler and make: it makes its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/*) CMakeLists.txt pyproject.toml
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help install reproduce test test-all bench bench-training lint sanitize wheel clean

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

reproduce: install  ## the main job; so far: the baselines of two of the paper's problems, a trained model, this machine's speed
	$(BIN)/ridgeformer info
	$(BIN)/ridgeformer baselines --noise 'uniform(0,5)'
	$(BIN)/ridgeformer baselines --noise 'categorical(1,3)'
	@mkdir -p runs
	$(BIN)/ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/ --plot runs/learning-curve.png
	$(BIN)/ridgeformer bench --quick

test: install  ## the tests, a few minutes once installed
	$(BIN)/python -m pytest -q -n auto -m 'not long'

test-all: install  ## all tests, the long ones too
	$(BIN)/python -m pytest -q -n auto

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
