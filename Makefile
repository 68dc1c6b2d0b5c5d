# Needs python3 (3.10 or later) with venv and headers, and g++; everything else comes from PyPI.
PYTHON ?= python3
VENV := .venv
VENV_TOX := .venv-tox
VENV_BENCHMARKS := .venv-benchmarks
VENV_TORCH := .venv-torch
VENV_MODELS := .venv-models
VENV_ALL := .venv-all
# Where torch comes from, such as https://download.pytorch.org/whl/cpu for a build without CUDA; by default PyPI.
TORCH_INDEX ?=

ALL_PLUGINS := $(patsubst %/pyproject.toml,./%,$(wildcard plugins/*/pyproject.toml))
# Those that need torch: it is large, and see VENV_TORCH below.
TORCH_PLUGINS := ./plugins/pruner ./plugins/zoo
PLUGINS := $(filter-out $(TORCH_PLUGINS),$(ALL_PLUGINS))
# What the demonstration installs beside the core, which compiles for this machine itself: no compiler, no torch.
SMALL_PLUGINS := $(filter-out ./plugins/tvm ./plugins/mlir,$(PLUGINS))
PROJECT_FILES := pyproject.toml $(wildcard plugins/*/pyproject.toml)
SOURCES := $(shell find src native $(PLUGINS:%=%/src) -type f -not -name '*.pyc' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo demo-model test test-slow test-all test-long benchmarks venv all check clean
.PHONY: environments static units slow-units slow-others all-units all-others
.NOTPARALLEL:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: venv ## Tune a small operator and show what it gained
	$(VENV)/bin/autotune demo

demo-model: $(VENV_MODELS)/.installed ## Tune MobileNet-V2 and compare it with torch, in at most 5 minutes
	$(VENV_MODELS)/bin/autotune tune-model --network mobilenet_v2 --time 200
	$(VENV_MODELS)/bin/autotune bench-model --network mobilenet_v2 --only "autotune,untuned,torch eager" --turns 3

test: static units ## Run the checks of every change: lint, types, docs, tests

# Downloads, mypy and Sphinx leave processors idle, and no timing suffers: those run side by side.
environments: $(VENV_TOX)/.installed
	$(VENV_TOX)/bin/tox run-parallel --notest

# What is tested is installed meanwhile: that is mostly waiting for an index, or for a wheel that docs builds, too.
static: environments
	$(VENV_TOX)/bin/tox run-parallel -p all -e lint,types,docs,tests,torch -x testenv:tests.commands= -x testenv:torch.commands=

units: environments
	$(VENV_TOX)/bin/tox run -e tests,torch

test-slow: slow-units slow-others ## Run the slow tests too, and the wheels by themselves

slow-units: $(VENV_TOX)/.installed
	$(VENV_TOX)/bin/tox run -e tests -- -m "slow and not long"

slow-others: $(VENV_TOX)/.installed
	$(VENV_TOX)/bin/tox run-parallel -e torch,ray,wheels -- -m "slow and not long"

# Each session of pytest collects for a minute: one runs the quick and the slow ones.
test-all: static all-units all-others ## Run both, in fewer sessions than one after the other: continuous integration

all-units: environments
	$(VENV_TOX)/bin/tox run -e tests -- -m "not long"

all-others: environments
	$(VENV_TOX)/bin/tox run-parallel -e torch,ray,wheels -- -m "not long"

test-long: $(VENV_TOX)/.installed ## Run what takes hours, before a release; goes on where it was stopped
	$(PYTHON) scripts/test_long.py $(VENV_TOX)/bin/tox

benchmarks: $(VENV_BENCHMARKS)/.installed $(VENV_TORCH)/.installed $(VENV_MODELS)/.installed ## Compare with numpy, oneDNN, MetaSchedule and CP-SAT, and the backends with each other
	$(VENV_BENCHMARKS)/bin/python benchmarks/bench.py peak gemm conv2d int8 operators backends draft cuda transfer native lowering records measuring --quick --check --torch-python $(VENV_TORCH)/bin/python
	$(VENV_BENCHMARKS)/bin/python benchmarks/bench.py strategies --quick --check --seeds 2
	$(VENV_MODELS)/bin/python benchmarks/bench.py reading models --quick --check

venv: $(VENV)/.installed ## Create .venv with the core and the plugins in this repository that need no compiler and no torch

all: $(VENV_ALL)/.installed ## Create .venv-all with everything: all plugins, torch, ONNX, reports; TORCH_INDEX=URL chooses the build of torch

check: ## Say what this machine lacks for building
	@sh scripts/check_system.sh $(PYTHON)

clean: ## Remove environments and everything that was built
	rm -rf $(VENV) $(VENV_TOX) $(VENV_BENCHMARKS) $(VENV_TORCH) $(VENV_MODELS) $(VENV_ALL) .tox build dist docs/_build
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A new environment when dependencies may have changed.
$(VENV)/.created: $(PROJECT_FILES) scripts/check_system.sh
	@sh scripts/check_system.sh $(PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# One command for all, from local paths: a project given by path is the only candidate for its name.
$(VENV)/.installed: $(VENV)/.created $(SOURCES)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check '.[report]' $(SMALL_PLUGINS)
	@touch $@

$(VENV_TOX)/.installed: scripts/check_system.sh
	@sh scripts/check_system.sh $(PYTHON)
	$(PYTHON) -m venv --clear $(VENV_TOX)
	$(VENV_TOX)/bin/python -m pip install --quiet --disable-pip-version-check 'tox>=4.11,<5'
	@touch $@

$(VENV_BENCHMARKS)/.installed: $(PROJECT_FILES) $(SOURCES) benchmarks/requirements.txt scripts/check_system.sh
	@sh scripts/check_system.sh $(PYTHON)
	$(PYTHON) -m venv --clear $(VENV_BENCHMARKS)
	$(VENV_BENCHMARKS)/bin/python -m pip install --quiet --disable-pip-version-check . $(PLUGINS) -r benchmarks/requirements.txt
	@touch $@

# torch first where an index is named: what is installed then is kept.
$(VENV_ALL)/.installed: $(PROJECT_FILES) $(SOURCES) $(shell find $(TORCH_PLUGINS:%=%/src) -name '*.py') scripts/check_system.sh
	@sh scripts/check_system.sh $(PYTHON)
	$(PYTHON) -m venv --clear $(VENV_ALL)
	$(if $(TORCH_INDEX),$(VENV_ALL)/bin/python -m pip install --quiet --disable-pip-version-check torch --index-url $(TORCH_INDEX))
	$(VENV_ALL)/bin/python -m pip install --quiet --disable-pip-version-check '.[onnx,report,torch]' $(ALL_PLUGINS)
	@touch $@

# What networks are read from is not in .venv: it is larger than everything else together.
$(VENV_MODELS)/.installed: $(PROJECT_FILES) $(SOURCES) $(shell find plugins/zoo/src -name '*.py') scripts/check_system.sh
	@sh scripts/check_system.sh $(PYTHON)
	$(PYTHON) -m venv --clear $(VENV_MODELS)
	$(VENV_MODELS)/bin/python -m pip install --quiet --disable-pip-version-check '.[torch,onnx]' ./plugins/zoo
	@touch $@

# By itself: MetaSchedule's workers take minutes longer to start where torch is installed.
$(VENV_TORCH)/.installed:
	$(PYTHON) -m venv --clear $(VENV_TORCH)
	$(VENV_TORCH)/bin/python -m pip install --quiet --disable-pip-version-check numpy torch==2.13.0
	@touch $@
