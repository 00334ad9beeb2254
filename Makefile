# Every command of the project. All of it works inside this folder: Python packages go into .venv,
# C builds into build/, and nothing is installed elsewhere.

PYTHON ?= python3
JOBS ?= 2

# The PyTorch of the tests that need one; any build will do, so TORCH='--index-url ... torch' may
# name a smaller one than the default of your machine.
TORCH ?= torch==2.13.0
# 0 leaves PyTorch out; the tests that need it are then skipped, with that reason.
GMLAKE_TEST_TORCH ?= 1

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# CMake 3.20 or later, which is the first to know this policy; else the one from PyPI.
CMAKE := $(shell cmake --help-policy CMP0116 >/dev/null 2>&1 && echo cmake || echo $(BIN)/cmake)
CTEST := $(patsubst %cmake,%ctest,$(CMAKE))
CMAKE_NEEDED := $(filter $(BIN)/cmake,$(CMAKE))

# ThreadSanitizer of older compilers stops where the kernel randomises addresses by many bits.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

PACKAGE_FILES := pyproject.toml CMakeLists.txt $(shell find csrc src -type f \
	\( -name '*.[ch]' -o -name '*.py' -o -name '*.pyi' -o -name '*.txt' -o -name '*.map' \))
C_FILES := $(shell find csrc tests/c benchmarks -name '*.[ch]')
TRACES := $(sort $(wildcard examples/traces/*.gmtrace))

.DEFAULT_GOAL := help
.PHONY: help demo test test-c test-python lint lint-format lint-tidy lint-ruff lint-types \
	sanitize sanitize-address sanitize-thread bench format clean distclean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.package ## Install into .venv and replay the shipped traces through every policy
	@$(BIN)/gmlake replay $(TRACES)

test: test-c test-python ## Every test: C through ctest, Python through pytest

test-c: build/c/.built ## The C tests
	@$(CTEST) --test-dir build/c --output-on-failure --parallel $(JOBS)

test-python: $(VENV)/.test $(if $(filter 0,$(GMLAKE_TEST_TORCH)),,$(VENV)/.torch) ## The Python tests
	@$(BIN)/python -m pytest

lint: lint-format lint-tidy lint-ruff lint-types ## Formatting, static analysis and types

lint-format: $(VENV)/.lint
	@$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	@$(BIN)/ruff format --check .

lint-tidy: $(VENV)/.lint build/lint/.configured
	@$(BIN)/python -c 'import json; print(*(unit["file"] for unit in \
	        json.load(open("build/lint/compile_commands.json"))), sep="\n")' \
	    | xargs -P $(JOBS) -n 1 $(BIN)/clang-tidy -p build/lint --quiet
	@echo "clang-tidy: clean"

lint-ruff: $(VENV)/.lint
	@$(BIN)/ruff check .

lint-types: $(VENV)/.lint
	@$(BIN)/mypy

sanitize: sanitize-address sanitize-thread ## The C tests under ASan and UBSan, and under TSan

sanitize-address: build/address/.built
	@$(CTEST) --test-dir build/address --output-on-failure --parallel $(JOBS)

sanitize-thread: build/thread/.built
	@$(FIXED_ADDRESSES) $(CTEST) --test-dir build/thread --output-on-failure --parallel $(JOBS)

bench: build/bench/.built $(VENV)/.package ## Speed, and reserved memory on the shipped traces
	@$(BIN)/python benchmarks/speed.py --program build/bench/benchmarks/c/bench_policies
	@$(BIN)/python benchmarks/utilization.py $(TRACES)

format: $(VENV)/.lint ## Rewrite every file in the project's format
	@$(BIN)/clang-format -i $(C_FILES)
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

clean: ## Remove builds and caches
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean ## Remove .venv as well
	rm -rf $(VENV)

# ---- .venv: each stamp is one step, taken again when what it depends on has changed ---------------

# Debian's Python may lack ensurepip, but its pip can fill an environment from outside.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	    || { echo "gmlake needs Python 3.10 or later: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null \
	    || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	         && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@touch $@

$(VENV)/.package: $(VENV)/.created $(PACKAGE_FILES)
	@$(PIP) install .
	@touch $@

# gmlake itself is there already, so these add only what an extra names.
$(VENV)/.test $(VENV)/.lint: $(VENV)/.%: $(VENV)/.package
	@cmp -s pyproject.toml $@ || $(PIP) install 'gmlake[$*]'
	@cp pyproject.toml $@

$(VENV)/.torch: $(VENV)/.created
	@$(PIP) install $(TORCH)
	@touch $@

$(BIN)/cmake: $(VENV)/.created
	@$(PIP) install 'cmake>=3.20'
	@touch $@

# ---- C builds ----------------------------------------------------------------------------------

build/c/.configured: OPTIONS := -DGMLAKE_TESTS=ON
build/address/.configured: OPTIONS := -DGMLAKE_TESTS=ON -DGMLAKE_SANITIZE=address,undefined
build/thread/.configured: OPTIONS := -DGMLAKE_TESTS=ON -DGMLAKE_SANITIZE=thread
build/bench/.configured: OPTIONS := -DGMLAKE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
build/lint/.configured: OPTIONS := -DGMLAKE_TESTS=ON -DGMLAKE_PYTHON=ON \
	-DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
build/lint/.configured: $(VENV)/.created

build/%/.configured: CMakeLists.txt $(CMAKE_NEEDED)
	@$(CMAKE) -S . -B $(@D) -G 'Unix Makefiles' -DGMLAKE_WERROR=ON $(OPTIONS) >/dev/null
	@touch $@

# CMake knows better than this file what is out of date, so it is always asked.
.PRECIOUS: build/%/.configured
.PHONY: build/c/.built build/address/.built build/thread/.built build/bench/.built
build/c/.built build/address/.built build/thread/.built build/bench/.built: build/%/.built: \
		build/%/.configured
	@$(CMAKE) --build $(@D) --parallel $(JOBS) -- --no-print-directory --quiet
