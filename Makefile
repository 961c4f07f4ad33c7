# Targets for developers and CI. Requires make and Python 3.10 to 3.12, and installs everything else in .venv.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One test process more than CPUs, because many tests wait for other processes. The limit is four, because
# each process loads torch.
AT_ONCE := --numprocesses $(shell cpus=$$(getconf _NPROCESSORS_ONLN); echo $$((cpus < 3 ? cpus + 1 : 4))) \
	--dist worksteal
# The tests of structure and documentation, which `make check` runs.
CHECKS := $(addprefix tests/test_,$(addsuffix .py,architecture documentation documented_commands \
	generated_pages wording))
TYPED := flytekitplugins kfpytorch_common backend_plugin setup.py $(wildcard examples benchmarks)

# Write bytecode, because many tests start processes that import the packages.
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter that flytekit supports and that can create virtual environments. Debian ships
# ensurepip in a separate package, python3-venv. `make test PYTHON=...` selects another interpreter.
PYTHON ?= $(shell for python in python3 python3.12 python3.11 python3.10; do \
	$$python -c 'import ensurepip, sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null \
	&& echo $$python && break; done)

.PHONY: help demo test check docs conformance soak gpu bench tools e2e generate lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(READY)  ## train a small model on four local ranks, then run jobs in an emulated cluster
	$(BIN)/pyflyte run examples/01_digits_elastic.py train
	@echo
	@echo "The command was: $(BIN)/pyflyte run examples/01_digits_elastic.py train"
	@echo "Next: run tasks through a connector and an emulated cluster, with: $(BIN)/kfpytorch demo"
	@echo
	$(BIN)/kfpytorch demo
	@echo
	@echo "Continue with examples/02_*.py and docs/README.md."

test: $(READY)  ## run the tests that need nothing but Python, except those of `make check`
	$(BIN)/pytest $(AT_ONCE) $(addprefix --ignore ,$(CHECKS))

check: $(READY)  ## check format, types, import contracts, structure, duplicates, documentation, branch coverage
	$(BIN)/ruff format --check $(TYPED) tests docs
	$(BIN)/ruff check $(TYPED) tests docs
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports
	$(BIN)/pytest $(AT_ONCE) $(CHECKS)
	$(BIN)/coverage run -m pytest --quiet tests/unit/core tests/golden
	$(BIN)/coverage report --include='backend_plugin/core/*' --fail-under=100

docs: $(READY)  ## build the documentation as a site, build/site/index.html; a warning is an error
	$(BIN)/sphinx-build -q -E -a -W -n --keep-going -j auto -c docs . build/site

conformance: $(READY)  ## compare the wire format with the published plugin, and run its tests; downloads it once
	$(BIN)/pytest -m conformance tests/conformance

soak: $(READY)  ## run the long tests: many kills, generated cases, storms (after `make tools`); SHARE=1/3 runs a third
	$(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist worksteal -m "soak or hypothesis" --hypothesis-profile=soak --share=$(or $(SHARE),1/1)

gpu: $(READY)  ## run the tests that need an NVIDIA GPU, on a machine with one
	$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available() and "torch finds no GPU")'
	$(BIN)/pytest -m gpu tests/gpu

bench: $(READY)  ## measure the figures in README and docs
	$(BIN)/python -m benchmarks

tools: $(READY)  ## build the programs of a real cluster once, from pinned Go modules, in about 20 minutes
	cd tests/cluster && ../../$(BIN)/python -m rig.tools

e2e: $(READY)  ## run the tests on a real cluster: API server, operator, schedulers, nodes, FlytePropeller; needs Go
	.ci/e2e

generate: $(READY)  ## generate the code of protos/, golden files, the chart's RBAC rules, and the output shown in pages
	$(BIN)/protoc --proto_path=protos --python_out=protos --pyi_out=protos protos/kfpytorch_idl/*/*.proto
	UPDATE=1 $(BIN)/pytest tests/golden tests/test_documented_commands.py
	UPDATE=1 $(BIN)/pytest tests/test_generated_pages.py tests/charts/test_chart_values.py

lock: $(READY)  ## resolve the dependencies again, for all supported Python versions
	$(BIN)/uv pip compile setup.py --extra backend --extra otel --extra elastic --extra dev --universal --python-version 3.10 \
		--upgrade --generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
		--output-file requirements.lock
	for tool in kubeflow-sdk jax initializers; do \
		$(BIN)/uv pip compile tests/cluster/tools/$$tool/requirements.in --universal --python-version 3.10 \
			--upgrade --generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
			--output-file tests/cluster/tools/$$tool/requirements.lock || exit 1; \
	done
	$(BIN)/uv pip compile setup.py tests/recipes/requirements.in --extra finetune --constraint requirements.lock \
		--universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" --output-file tests/recipes/requirements.lock

clean:  ## remove the environment and all build results
	rm -rf $(VENV) build dist *.egg-info .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# pip installs the locked version of uv, and uv installs the other locked packages.
$(READY): requirements.lock setup.py
	@test -n "$(PYTHON)" || { echo "No Python 3.10 to 3.12 with its venv package here: install one, or run 'make test PYTHON=/path/to/python3.12'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	awk '/^[^ #]/ { wanted = /^uv==/ } wanted' requirements.lock > $(VENV)/uv.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.lock
	$(BIN)/uv pip sync --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@
