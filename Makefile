# SPDX-License-Identifier: Apache-2.0
# The project's verbs: `make help` lists them, and the scripts in tools/ do the work.

STARTED := $(shell date +%s)
PYTHON  := .venv/bin/python
ISOBIT  := build/release/isobit

# What `make accuracy` and `make bench` measure.
ACCURACY_CASES          := layernorm,rmsnorm --variant simd --grid full
ACCURACY_LONG_CASES     := layernorm,rmsnorm --variant simd --rows 1000003 --cols 7 --dtype f32,bf16 --input const_grad
BENCH_LAYERNORM_CASES   := layernorm --pass fwd,bwd --threads 1,2 --plan default
BENCH_RMSNORM_CASES     := rmsnorm --pass fwd,bwd --threads 1,2 --plan default
BENCH_ELEMENTWISE_CASES := elementwise --kind add,increment --threads 1,2 --plan default

# How many calls `make properties` draws for each property and operation.
CASES := 10000

# What `make gpu` runs, and where it leaves what it found.
PHASE :=
OUT   := build/gpu-results

# How `make fuzz` runs; a call that takes seconds is a finding.
RUNS       := 10000000
FUZZ_FLAGS := -entropic=0 -max_len=192 -timeout=10 -artifact_prefix=build/fuzz/ -print_final_stats=1
FUZZ_ASAN  := malloc_context_size=2:quarantine_size_mb=16 # half again as many calls a second

CXX_FILES = $(shell git ls-files -co --exclude-standard '*.h' '*.hpp' '*.c' '*.cpp' '*.cu' '*.cuh')

# Read by cmake when it first configures a folder; by then tools/bootstrap may have brought it.
export CMAKE_CXX_COMPILER_LAUNCHER = $(notdir $(shell command -v ccache))
# Clones, worktrees and the wheel share what they compile.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help build demo test test-full coverage properties fuzz mutants bench accuracy kernels gpu gpu-pack gpu-dry
.PHONY: oldest-torch wheel docs format check clean venv

help:       ## this list
	@sed -n 's/^\([a-z -]*\): .*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: venv ## build/release/isobit, and .venv with the peers that can be had
	@cmake --preset release
	@cmake --build --preset release

demo: build ## builds, then shows everything in a few minutes and writes an HTML report
	@tools/demo

test: build ## the tests and checks of every day
	@$(PYTHON) tools/suite.py test --started $(STARTED)

test-full: build ## sanitizers, the other compiler, another architecture, the long tests, mutants, formatting
	@tools/bootstrap test-full
	@$(PYTHON) tools/suite.py test-full --started $(STARTED)

coverage: build ## which lines and branches of the C++ the tests execute
	@$(PYTHON) tools/suite.py coverage --started $(STARTED)

properties: build ## CASES=10000 calls for each property and operation, under a minute
	@RC_PARAMS="max_success=$(CASES)" build/release/isobit_tests --gtest_filter='*Properties*'

mutants: build ## plants every defect of tests/mutants/, asks the tests to find it, and writes the log
	@$(PYTHON) tools/mutants.py --all --log

bench: build ## times every operator beside its peers into bench/results/
	@$(PYTHON) tools/bench.py $(BENCH_LAYERNORM_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_RMSNORM_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_ELEMENTWISE_CASES)

accuracy: build ## the full accuracy grid, which takes long, and its tables
	@$(ISOBIT) verify $(ACCURACY_CASES) --out build/accuracy
	@$(ISOBIT) verify $(ACCURACY_LONG_CASES) --out build/accuracy/long
	@$(PYTHON) tools/tables.py accuracy build/accuracy/verify.jsonl build/accuracy/long/verify.jsonl

fuzz: ## RUNS=10000000: calls of the C ABI made by libFuzzer; what it learns stays in build/fuzz
	@tools/bootstrap build test test-full
	@cmake --preset fuzz
	@cmake --build --preset fuzz
	@mkdir -p build/fuzz/corpus
	@ASAN_OPTIONS=$(FUZZ_ASAN) build/fuzz/fuzz_c_abi -runs=$(RUNS) $(FUZZ_FLAGS) build/fuzz/corpus tests/fuzz/corpus

kernels: build ## build/release/libisobit_cuda.so, and the registers of its kernels
	@$(PYTHON) tools/kernels.py

docs: venv  ## the site of the documentation into build/docs; a link that leads nowhere fails
	@tools/docs

wheel: build ## dist/: one wheel for every Python and PyTorch, with kernels for all GPUs; and the sdist
	@tools/wheel

oldest-torch: build ## the tests of isobit.torch with PyTorch 2.11 for CUDA, which fetches gigabytes once
	@tools/oldest_torch

gpu: ## PHASE=test|sanitize|bench on a machine with a GPU, with what `make gpu-pack` made; OUT=folder
	@[ -e build/gpu/commit ] || $(MAKE) --no-print-directory gpu-pack
	@python3 tools/gpu.py $(PHASE) --out $(OUT)

gpu-pack: kernels ## build/gpu: the programs that travel to a machine with a GPU, which may lack compilers
	@$(PYTHON) tools/gpu.py --pack

gpu-dry: kernels ## all phases with the emulator in the place of a GPU, in a copy of what travels
	@$(PYTHON) tools/gpu.py --dry

format: venv ## rewrites C++ and Python in the project's one style
	@.venv/bin/clang-format -i $(CXX_FILES)
	@.venv/bin/ruff format --quiet
	@.venv/bin/ruff check --quiet --fix

check: venv ## formatting, include rules, dead paths; changes nothing
	@.venv/bin/clang-format --dry-run -Werror $(CXX_FILES)
	@.venv/bin/ruff format --quiet --check
	@.venv/bin/ruff check --quiet
	@$(PYTHON) tools/check_layers.py
	@$(PYTHON) tools/check_paths.py

clean:      ## removes build/; .venv stays
	@rm -rf build

venv:
	@tools/bootstrap build test
	@tools/venv
