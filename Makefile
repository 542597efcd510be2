# Every target works in a fresh clone with only Python 3.11+, a C++ compiler and make; it creates its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/*) CMakeLists.txt pyproject.toml src/ridgeformer/_version.py  # the last holds the version
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help install reproduce reproduce-from-scratch zoo zoo-explosions zoo-prices test test-all test-lowest test-numpy fuzz coverage integration \
  bench bench-training bench-general lint lint-project hooks sanitize docs docs-check prose playground playground-check wheel wheel-numpy clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'ridgeformer needs Python 3.11 or newer; set PYTHON=/path/to/python'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install 'scikit-build-core>=0.10' 'nanobind>=2.4' 'hatch-fancy-pypi-readme>=24.1' 'cmake>=3.18' ninja

$(VENV)/.installed: $(BIN)/python $(NATIVE)
	$(PIP) install --no-build-isolation --editable . --group dev
	@$(BIN)/python -c 'import ridgeformer._core' 2>/dev/null || { rm -rf build; \
	  echo 'The native core was not built: this needs a C++17 compiler (g++ or clang++). See `$(BIN)/pip install -v .`'; exit 1; }
	@touch $@

install: $(VENV)/.installed  ## create .venv and build the native core

# What is needed to compute and to draw, without what is needed to test.
$(VENV)/.plot: $(BIN)/python $(NATIVE)
	$(PIP) install --no-build-isolation --editable '.[plot]'
	@touch $@

reproduce: $(VENV)/.plot  ## reproduce Table 1, the figures and the claims of the paper; takes minutes
	$(BIN)/ridgeformer info
	$(BIN)/ridgeformer papers table1 --out reproduction
	$(BIN)/ridgeformer papers run vladymyrov2024 --out reproduction
	$(BIN)/ridgeformer papers figures vladymyrov2024 --out reproduction
	$(BIN)/ridgeformer papers report --out reproduction
	@echo 'The table, the figures and the report are in reproduction/: open reproduction/vladymyrov2024.html'

reproduce-from-scratch: $(VENV)/.plot  ## the same, after training all 210 models with five seeds into runs/; less than an hour
	$(BIN)/ridgeformer papers table1 --retrain --runs runs --out reproduction
	$(BIN)/ridgeformer papers figures vladymyrov2024 --runs runs --out reproduction
	$(BIN)/ridgeformer papers report --runs runs --out reproduction
	@echo 'The table, the figures and the report are in reproduction/: open reproduction/vladymyrov2024.html'

zoo: install  ## copy the models of runs/, which reproduce-from-scratch trained, into the package
	$(BIN)/python -m benchmarks.shipped models runs

zoo-explosions: install  ## measure how often each shipped model explodes; ten minutes on two cores
	$(BIN)/python -m benchmarks.shipped

zoo-prices: install  ## measure what avoiding explosions cost each shipped model; three minutes of CPU time
	$(BIN)/python -m benchmarks.shipped prices

test: install  ## run the fast tests; a few minutes once installed
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m 'not long and not slow'

test-all: install  ## run all tests, including the slow and the long ones
	$(BIN)/python -m pytest -q -n auto --dist worksteal

fuzz: install  ## try 100,000 damaged files and 100,000 unusual calls; at most ten minutes
	$(BIN)/python tests/fuzzing/fuzz.py

coverage: install  ## run the fast and the slow tests and print the share of lines that they execute; fails below 93 %
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m 'not long' --cov --cov-report=term:skip-covered

# A wheel in an environment of its own with the lowest versions that pyproject.toml allows; meant for Python 3.11.
LOWEST := build/lowest
LOWEST_TESTS := tests/cli tests/engine tests/models tests/noise tests/sklearn tests/sweeps/test_connection.py tests/test_moments.py tests/test_values.py \
  tests/evaluation/test_results.py tests/training/test_descent.py tests/training/test_job.py tests/training/test_rates.py

test-lowest: install  ## run a fast part of the tests with the lowest allowed versions of the dependencies
	rm -rf $(LOWEST)
	$(BIN)/python -m venv $(LOWEST)
	$(BIN)/python .ci/lowest.py plot dask onnx sklearn tensorboard pandas > $(LOWEST)/constraints.txt
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir $(LOWEST)/wheel .
	$(LOWEST)/bin/python -m pip --quiet --disable-pip-version-check install --constraint $(LOWEST)/constraints.txt \
	  "$$(echo $(LOWEST)/wheel/*.whl)[plot,dask,onnx,sklearn,tensorboard,pandas]" 'pytest>=8.2' 'pytest-xdist>=3.6' 'hypothesis>=6.100'
	$(LOWEST)/bin/python -m pytest -q -n auto --dist worksteal -m 'not long' $(LOWEST_TESTS)

# What an installation without a working compiler does: NumPy takes the core's place.
NUMPY := build/numpy
NUMPY_TESTS := tests/engine/test_engine.py tests/models tests/noise tests/test_moments.py tests/problems/test_problem.py tests/test_values.py

test-numpy: $(BIN)/python  ## run a fast part of the tests in an installation without the native core
	rm -rf $(NUMPY)
	$(BIN)/python -m venv $(NUMPY)
	CXX=false $(NUMPY)/bin/python -m pip --quiet --disable-pip-version-check install --config-settings=build-dir=$(NUMPY)/cmake . \
	  'pytest>=8.2' 'pytest-xdist>=3.6' 'hypothesis>=6.100' 'scikit-learn>=1.6'
	$(NUMPY)/bin/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("ridgeformer._core") is not None)'
	RIDGEFORMER_ENGINE=numpy $(NUMPY)/bin/python -m pytest -q -n auto --dist worksteal -m 'not long' $(NUMPY_TESTS)

bench: $(VENV)/.integration  ## measure the speed, compared with PyTorch and JAX (installs both)
	$(BIN)/python -m benchmarks --out benchmarks/latest.json

bench-training: install  ## measure the loss and time of training, seeds 0 to 4; half an hour
	$(BIN)/python -m benchmarks --only training --only silence --seeds 5 --out benchmarks/training.json

bench-general: install  ## measure what training reaches on problems that nothing was tuned for; hours, but it resumes
	$(BIN)/python -m benchmarks --only general --only lengths --only pools --out benchmarks/general.json

lint: install  ## run ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.integration: $(VENV)/.installed
	$(PIP) install --group integration
	@touch $@

integration: $(VENV)/.integration  ## install PyTorch and JAX, without which `make test` skips some tests

$(VENV)/.project: $(VENV)/.installed
	$(PIP) install --group project
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) install --group docs
	@touch $@

# The one part of the book that is no Python package: MathJax in a single file, so that formulas need no network.
build/mathjax/tex-svg-full.js:
	@command -v npm > /dev/null || { echo 'The book needs npm to get MathJax (Debian: apt-get install npm).'; exit 1; }
	mkdir -p build/mathjax
	cd build/mathjax && npm pack --silent mathjax@3.2.2 && tar xzf mathjax-3.2.2.tgz && mv package/es5/tex-svg-full.js . && rm -r package mathjax-3.2.2.tgz

docs: $(VENV)/.docs $(VENV)/.integration build/mathjax/tex-svg-full.js  ## build the book in docs/_build/html, code executed; warnings are errors
	$(BIN)/python -m sphinx --jobs auto --fail-on-warning --keep-going --quiet -d build/doctrees -b html docs docs/_build/html
	@echo 'The book is in docs/_build/html: open docs/_build/html/index.html'

docs-check: $(VENV)/.docs  ## test the book that `make docs` built: links, names, terms, notebooks, and all pages in Chromium
	$(BIN)/python -m pytest -q docs/checks

prose: install  ## check the language of README, book, docstrings and help texts
	$(BIN)/python docs/scripts/prose.py

# The page of the playground: the core as WebAssembly, and the modules of the page with their library in one file. Both
# results are in the repository, so that nobody else needs these tools.
PLAYGROUND := src/ridgeformer/playground

$(VENV)/.playground: $(VENV)/.installed
	$(PIP) install --group playground
	@touch $@

build/playground/node_modules: $(PLAYGROUND)/sources/package-lock.json
	@command -v npm > /dev/null || { echo 'The playground needs npm (Debian: apt-get install npm).'; exit 1; }
	mkdir -p build/playground
	cp $(PLAYGROUND)/sources/package*.json build/playground
	cd build/playground && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

playground: $(VENV)/.playground build/playground/node_modules  ## build the page of the playground and its core
	$(BIN)/python native/wasm.py $(PLAYGROUND)/built/core.wasm
	node $(PLAYGROUND)/sources/build.mjs build/playground $(PLAYGROUND)/built

playground-check: $(VENV)/.playground build/playground/node_modules  ## check that the built page is what its sources give
	$(BIN)/python native/wasm.py build/playground/core.wasm
	node $(PLAYGROUND)/sources/build.mjs build/playground build/playground
	cmp build/playground/core.wasm $(PLAYGROUND)/built/core.wasm
	cmp build/playground/page.html $(PLAYGROUND)/built/page.html
	cmp build/playground/plot.js $(PLAYGROUND)/built/plot.js

SCHEMA := $(BIN)/check-jsonschema --builtin-schema

lint-project: $(VENV)/.project  ## check the files around the package: workflows, Dependabot, issue forms, citation, the hosting of the book
	$(SCHEMA) vendor.readthedocs .readthedocs.yaml
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) custom.github-workflows-require-timeout .github/workflows/*.yml
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --persona pedantic .

hooks: $(VENV)/.project  ## run the linters before every commit (installs a git hook; optional)
	$(BIN)/pre-commit install

sanitize: install  ## the core's tests under the address and undefined-behaviour sanitisers
	$(BIN)/python native/sanitize.py

wheel: install  ## a wheel in dist/; fails if the native core does not compile
	RIDGEFORMER_REQUIRE_CORE=1 $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .

# Only pip for Windows takes this wheel: elsewhere, where there is no wheel, it tries to compile the source distribution.
wheel-numpy: $(BIN)/python  ## a wheel without the native core in dist/, for Windows
	$(PIP) install 'wheel>=0.40'
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist --config-settings=wheel.cmake=false .
	$(BIN)/python -m wheel tags --remove --platform-tag win_amd64.win_arm64 dist/ridgeformer-*-py3-none-any.whl

clean:  ## remove everything that was made
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
