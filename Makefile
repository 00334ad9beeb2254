# Every command of the project. All of it works inside this folder: Python packages go into .venv and
# .venv-standin*, C builds into build/, and nothing is installed elsewhere.

PYTHON ?= python3
JOBS ?= 2
# Tests fork; numpy's threads for algebra, which nothing here has a use for, would be cut off by that.
export OPENBLAS_NUM_THREADS ?= 1
# Python keeps what it has compiled, also where the environment says that it should not: PyTorch takes 3 s
# to compile, and most tests on the stand-in start a Python that imports it.
unexport PYTHONDONTWRITEBYTECODE

# 0 leaves PyTorch out, and all tests that need it; the last lines say so.
GMLAKE_TEST_TORCH ?= 1

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The stand-in GPU runs the CUDA build of PyTorch, 5.2 GB on disk, so it has an environment of its own;
# another version of PyTorch has its own beside it. The Python tests that need PyTorch run there too, so
# that it is fetched once: for them is what the extra `test` names, from hypothesis on.
STANDIN_TORCH ?= 2.11.0
STANDIN_NAME := standin$(if $(filter 2.11.0,$(STANDIN_TORCH)),,-$(STANDIN_TORCH))
STANDIN := .venv-$(STANDIN_NAME)
STANDIN_PACKAGES := torch==$(STANDIN_TORCH) numpy transformers peft accelerate \
	lightning numba-cuda pytest pytest-xdist hypothesis ipykernel nbclient
# Every hand-over of memory between streams is checked, see docs/streams.md.
STANDIN_RUN := GMLAKE_TEST_CHECK_ORDER=1 $(STANDIN)/bin/python -m tests.standin --devices 2 --capacity 80GiB
STANDIN_SITE = $(shell $(STANDIN)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
HAS_STANDIN := $(if $(filter 0,$(GMLAKE_TEST_TORCH)),,$(wildcard $(STANDIN)/.ready))

# CMake 3.20 or later, which is the first to know this policy; else the one from PyPI.
CMAKE := $(shell cmake --help-policy CMP0116 >/dev/null 2>&1 && echo cmake || echo $(BIN)/cmake)
CTEST := $(patsubst %cmake,%ctest,$(CMAKE))
CMAKE_NEEDED := $(filter $(BIN)/cmake,$(CMAKE))

# ThreadSanitizer of older compilers stops where the kernel randomises addresses by many bits.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

PACKAGE_FILES := pyproject.toml CMakeLists.txt $(shell find csrc lab src -type f \
	\( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.py' -o -name '*.pyi' -o -name '*.txt' -o -name '*.map' \
	-o -name '*.css' -o -name '*.js' -o -name '*.html' -o -name '*.cmake' \))
C_FILES := $(shell find csrc lab tests/c tests/standin benchmarks examples -name '*.[ch]' -o -name '*.[ch]pp')
# A developer build has lab/ beside the product; `pip install .` and `make wheels` make the product alone.
INSTALL := install . --config-settings=cmake.define.GMLAKE_LAB=ON
TRACES := $(sort $(wildcard examples/traces/*.gmtrace))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all checks test-newer test-c test-python test-torch test-standin test-interface alone versions standin lint lint-format lint-tidy lint-ruff lint-types lint-words site \
	sanitize sanitize-address sanitize-thread bench validate figures result results matrix fuzz differential stress adapters wheels test-wheels patch format clean distclean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.package ## Install into .venv and replay the shipped traces through every policy
	@$(BIN)/gmlake replay $(TRACES)

# Two rows of targets at a time: what one fetches and builds is not what the other does. Without PyTorch
# there is nothing to run on the stand-in GPU: GMLAKE_TEST_TORCH=0.
TEST_ROWS := 'test-c test-python' $(if $(filter 0,$(GMLAKE_TEST_TORCH)),,'standin test-standin test-torch')
test: ## The tests of every room and every promise, in minutes: C, Python, PyTorch on the stand-in GPU
test-all: ## Every test there is
test: export LENGTH := short
test-all: export LENGTH := all
test test-all: $(CMAKE_NEEDED)
	@$(PYTHON) tests/every.py '$(MAKE)' $(TEST_ROWS)

# Everything that has to pass, besides `make test`: two rows, so that what takes one processor leaves the
# other to the next.
checks: export LENGTH := rest
checks: export QUICK := 1
checks: $(CMAKE_NEEDED) ## What .ci/run runs after `make test`: the long tests, another PyTorch, lint, site, sanitizers
	@$(PYTHON) tests/every.py '$(MAKE) --keep-going' 'test-standin test-torch test-newer' \
	    'test-python lint site alone sanitize'

# Tests of Python that take long are marked so.
LENGTH ?= all
MARKED = $(if $(filter short,$(LENGTH)),not long)$(if $(filter rest,$(LENGTH)),long)

test-c: build/c/.built ## The C tests
	@$(CTEST) --test-dir build/c --output-on-failure --timeout 600 --parallel $(JOBS)

# Pages are tested where chromium and chromedriver are installed; GMLAKE_REQUIRE_BROWSER=1 demands it.
test-python: $(VENV)/.test ## The Python tests, but for those that need PyTorch
	@GMLAKE_TEST_TORCH=0 GMLAKE_REQUIRE_LAB=1 $(BIN)/python -m pytest $(if $(MARKED),-m '$(MARKED)')

# On the processor alone: the stand-in's Python without its GPU.
test-torch: $(if $(filter 0,$(GMLAKE_TEST_TORCH)),,$(STANDIN)/.package) ## The Python tests that need PyTorch
ifeq ($(GMLAKE_TEST_TORCH),0)
	@echo "left out, as GMLAKE_TEST_TORCH=0 says: the Python tests that need PyTorch"
else
	@GMLAKE_REQUIRE_TORCH=1 GMLAKE_REQUIRE_LAB=1 $(STANDIN)/bin/python -m pytest -m 'torch$(if $(MARKED), and $(MARKED))' tests/python
endif

# Where nobody made the stand-in every one of them is skipped, and says so. A process takes whole files, by
# name, which has those that take longest early; by number of tests a long one may come last.
test-standin: $(if $(HAS_STANDIN),standin,$(VENV)/.test) ## PyTorch on the stand-in GPU
ifneq ($(HAS_STANDIN),)
	@$(CTEST) --test-dir build/$(STANDIN_NAME) --label-regex standin --output-on-failure --timeout 600 --parallel $(JOBS)
	@$(STANDIN_RUN) -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder \
	    $(if $(MARKED),-m '$(MARKED)') $(or $(STANDIN_TESTS),tests/standin)
else
	@$(BIN)/python -m pytest tests/standin || [ $$? -eq 5 ] # 5: nothing but skipped files
endif

# Those that another PyTorch may break soonest: STANDIN_TORCH=2.14.1
test-interface: STANDIN_TESTS := $(wildcard tests/standin/test_pytorch_*.py tests/standin/*/test_operators.py) $(patsubst \
	%,tests/standin/test_%.py,compat enabled enabled_memory moments native processes recording training turns)
test-interface: test-standin ## What touches PyTorch's private parts, on the stand-in GPU

# A PyTorch that is fetched from disk in CI. What takes long there is how an adapter is compiled and kept.
test-newer: ## The same under a PyTorch newer than the stand-in's own
	@for target in standin test-interface; do \
	    $(MAKE) --no-print-directory STANDIN_TORCH=2.14.1 LENGTH=short $$target || exit; done

VERSIONS ?= 2.11.0 2.13.0 2.14.1 2.15.0
versions: $(VENV)/.package ## The stand-in's tests under several PyTorch: VERSIONS='2.13.0 2.15.0'
	@$(BIN)/python benchmarks/versions.py $(VERSIONS)

alone: $(VENV)/.test $(CMAKE_NEEDED) ## The allocator without its annexes: built, tested, searched; QUICK=1
	@$(BIN)/python tests/alone.py --cmake '$(CMAKE)' --jobs $(JOBS) $(if $(QUICK),--quick)

standin: $(STANDIN)/.package build/$(STANDIN_NAME)/.built ## Fetch PyTorch for CUDA, build the stand-in GPU

lint: lint-format lint-tidy lint-ruff lint-types lint-words ## Formatting, static analysis, types, spelling

lint-format: $(VENV)/.lint
	@$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	@$(BIN)/ruff format --check .

lint-tidy: $(VENV)/.lint build/lint/.configured
	@$(BIN)/python -c 'import json; print(*sorted({unit["file"] for unit in \
	        json.load(open("build/lint/compile_commands.json")) \
	        if "/build/" not in unit["file"]}), sep="\n")' \
	    | xargs -P $(JOBS) -n 1 $(BIN)/clang-tidy -p build/lint --quiet
	@echo "clang-tidy: clean"

lint-ruff: $(VENV)/.lint
	@$(BIN)/ruff check .

# Types of PyTorch are those of the stand-in's environment, without which many a remark is in vain.
lint-types: $(VENV)/.lint $(if $(filter 0,$(GMLAKE_TEST_TORCH)),,$(STANDIN)/.ready)
ifeq ($(GMLAKE_TEST_TORCH),0)
	@echo "left out, as GMLAKE_TEST_TORCH=0 says: mypy, which needs PyTorch"
else
	@$(BIN)/mypy --python-executable $(STANDIN)/bin/python
endif

lint-words: $(VENV)/.lint
	@$(BIN)/codespell *.md Makefile mkdocs.yml .ci .github benchmarks csrc docs examples lab src tests

# Strict: a link that leads nowhere fails.
site: $(VENV)/.docs ## The docs as a site, in build/site: references made from docstrings and headers
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@echo "build/site is done; to read it: $(PYTHON) -m http.server -d build/site"

sanitize: sanitize-address sanitize-thread ## The C tests under ASan and UBSan, and under TSan

sanitize-address: build/address/.built
	@$(CTEST) --test-dir build/address --output-on-failure --timeout 600 --parallel $(JOBS)

# Ten seconds of threads: ThreadSanitizer keeps a mapping of its own for every range of addresses that
# `host` ever mapped, and the system allows a process 65,530 of them.
sanitize-thread: build/thread/.built
	@GMLAKE_STRESS_SECONDS=10 $(FIXED_ADDRESSES) $(CTEST) --test-dir build/thread --label-exclude sequential --output-on-failure --timeout 600 --parallel $(JOBS)

ROWS ?= build/rows.jsonl
COUNT ?= 240
matrix: $(VENV)/.test standin ## Which tests notice which small changes of the code, row by row: ROOM=csrc/lake ROWS=FILE COUNT=240 SEED=1
	@$(BIN)/python tests/matrix --rows $(ROWS) --count $(COUNT) --seed $(or $(SEED),1) --jobs $(JOBS) \
	    --packages $(STANDIN_SITE) $(if $(ROOM),--rooms $(ROOM)) $(if $(SUITES),--suites $(SUITES)) \
	    $(if $(BY_HAND),--by-hand)

MINUTES ?= 60
fuzz: $(VENV)/.test ## Files made to be wrong, for every command: MINUTES=60 SEED=1
	@$(BIN)/python tests/fuzz.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

PROGRAMS ?= 20000
stress: build/address/.built build/thread/.built $(VENV)/.created ## Random programs under the sanitizers: PROGRAMS=20000 SEED=1
	@$(BIN)/python tests/stress.py --programs $(PROGRAMS) --seed $(or $(SEED),1)

differential: ## Random programs under PyTorch's allocator and under gmlake, after `make standin`: PROGRAMS=20000 SEED=1
	@$(BIN)/python -m tests.standin.differential --programs $(PROGRAMS) --seed $(or $(SEED),1) --jobs $(JOBS)

bench: build/bench/.built $(VENV)/.package ## Speed, and reserved memory on the shipped traces
	@$(BIN)/python benchmarks/speed.py --programs build/bench/benchmarks/c
	@$(BIN)/python benchmarks/utilization.py $(TRACES)

FILES ?= benchmarks/recordings/h200.zip
validate: $(VENV)/.package ## Whether our models of PyTorch's allocators agree with recordings: FILES='...'
	@$(BIN)/python benchmarks/validation.py $(FILES)

figures: $(VENV)/.created ## The tables of documents that come from results, written again
	@$(BIN)/python benchmarks/tables.py --write

WITH ?= $(if $(HAS_STANDIN),$(STANDIN),$(VENV))/bin/python
result: $(VENV)/.created ## A committed result again, by the command that it records: NAME=speed WITH=.venv/bin/python
	@$(WITH) benchmarks/result.py $(NAME)

results: build/bench/.built $(VENV)/.test standin ## Every committed result that needs no GPU, again: some hours; INSTANCES=DIR
	@benchmarks/results.sh

# A wheel that is built after this brings them; else each is compiled at its first use.
adapters: $(VENV)/.package ## The adapters for every PyTorch, from its wheels: 5.3 GB to fetch
	@$(BIN)/python csrc/torch/native/build.py build/adapters/$(shell uname -m)

# Python 3.10 has no stable interface that is enough, so it gets wheels of its own where it is named:
# WHEEL_PYTHONS=python3.10. The stand-in GPU in them is built against the headers beside its PyTorch.
wheels: $(VENV)/.wheels $(STANDIN)/.ready ## Wheels for x86-64 and 64-bit Arm, into dist/
	@$(BIN)/python .ci/wheels.py dist $(STANDIN_SITE) $(WHEEL_PYTHONS)

TESTED_PYTHONS ?= $(PYTHON)
WHEEL_PIP := build/wheels/bin/python -m pip --disable-pip-version-check --quiet
test-wheels: ## The Python tests of what is in dist/: TESTED_PYTHONS='python3.10 python3.13'
	@set -e; for python in $(TESTED_PYTHONS); do \
	    $$python -m venv --clear build/wheels; \
	    $(WHEEL_PIP) install --no-index --no-deps --only-binary :all: --find-links dist gmlake; \
	    $(WHEEL_PIP) install 'gmlake[test]'; \
	    build/wheels/bin/python -m pytest -q --ignore tests/python/house; \
	done

NVCC ?= nvcc
patch: ## What `gmlake diagnose --accesses` puts into kernels, again, from patch.cu: NVCC=
	@$(PYTHON) .ci/patch.py $(NVCC)

format: $(VENV)/.lint ## Rewrite every file in the project's format
	@$(BIN)/clang-format -i $(C_FILES)
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

clean: ## Remove builds and caches
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean ## Remove .venv as well
	rm -rf $(VENV) .venv-standin*

# ---- .venv: each stamp is one step, taken again when what it depends on has changed ---------------

# Debian's Python may lack ensurepip, but its pip can fill an environment from outside.
$(VENV)/.created $(STANDIN)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	    || { echo "gmlake needs Python 3.10 or later: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv --clear $(@D) >/dev/null \
	    || { $(PYTHON) -m venv --clear --without-pip $(@D) \
	         && $(PYTHON) -m pip --python $(@D)/bin/python install --quiet pip; }
	@touch $@

$(VENV)/.package: $(VENV)/.created $(PACKAGE_FILES)
	@$(PIP) $(INSTALL)
	@touch $@

# gmlake itself is there already, so these add only what an extra names.
$(VENV)/.test $(VENV)/.lint $(VENV)/.docs $(VENV)/.wheels: $(VENV)/.%: $(VENV)/.package
	@cmp -s pyproject.toml $@ || $(PIP) install 'gmlake[$*]'
	@cp pyproject.toml $@

# Not compiled: of 15,000 modules that would be, the tests import a few thousand.
$(STANDIN)/.ready: $(STANDIN)/.created Makefile
	@echo "fetching PyTorch $(STANDIN_TORCH) for CUDA and its tests' libraries into $(STANDIN): 5.2 GB on disk, some minutes"
	@echo "(GMLAKE_TEST_TORCH=0 leaves out all that needs PyTorch)"
	@$(STANDIN)/bin/python -m pip --disable-pip-version-check install --no-compile \
	    $(foreach package,$(STANDIN_PACKAGES),'$(package)')
	@touch $@

$(STANDIN)/.package: $(STANDIN)/.ready $(PACKAGE_FILES)
	@$(STANDIN)/bin/python -m pip --disable-pip-version-check --quiet $(INSTALL)
	@touch $@

$(BIN)/cmake: $(VENV)/.created
	@$(PIP) install 'cmake>=3.20'
	@touch $@

# ---- C builds ----------------------------------------------------------------------------------

# Benchmarks too, so that they go on compiling.
build/c/.configured: OPTIONS := -DGMLAKE_TESTS=ON -DGMLAKE_BENCHMARKS=ON
build/address/.configured: OPTIONS := -DGMLAKE_TESTS=ON -DGMLAKE_SANITIZE=address,undefined
build/thread/.configured: OPTIONS := -DGMLAKE_TESTS=ON -DGMLAKE_SANITIZE=thread
build/bench/.configured: OPTIONS := -DGMLAKE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
WITH_STANDIN = -DGMLAKE_STANDIN=ON -DGMLAKE_STANDIN_PACKAGES=$(STANDIN_SITE)
build/$(STANDIN_NAME)/.configured: OPTIONS = $(WITH_STANDIN) \
	-DPython_EXECUTABLE=$(CURDIR)/$(STANDIN)/bin/python
build/$(STANDIN_NAME)/.configured: $(STANDIN)/.ready
build/lint/.configured: OPTIONS = -DGMLAKE_TESTS=ON -DGMLAKE_PYTHON=ON \
	-DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
	$(if $(HAS_STANDIN),$(WITH_STANDIN))
build/lint/.configured: $(VENV)/.created $(HAS_STANDIN)

build/%/.configured: CMakeLists.txt $(CMAKE_NEEDED)
	@$(CMAKE) -S . -B $(@D) -G 'Unix Makefiles' -DGMLAKE_WERROR=ON $(OPTIONS) >/dev/null
	@touch $@

# CMake knows better than this file what is out of date, so it is always asked.
.PRECIOUS: build/%/.configured
BUILDS := $(foreach kind,c address thread bench $(STANDIN_NAME),build/$(kind)/.built)
.PHONY: $(BUILDS)
$(BUILDS): build/%/.built: build/%/.configured
	@$(CMAKE) --build $(@D) --parallel $(JOBS) -- --no-print-directory --quiet
