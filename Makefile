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
BENCH_ACTIVATION_CASES  := activation --function gelu,silu --pass fwd,bwd --with none,gate --rows 1 --cols 1024,16384,1048576,10000000 --dtype f32,bf16 --threads 1,2 --plan default
BENCH_TRANSPOSE_CASES   := transpose --threads 1,2 --plan default
BENCH_ROPE_CASES        := rope --pass fwd,bwd --threads 1,2 --plan default
BENCH_SCAN_CASES        := scan --threads 1,2 --plan default
BENCH_CHANNEL_NORM_CASES := batch_norm,group_norm --pass fwd,bwd --threads 1,2 --plan default
BENCH_POOL2D_CASES      := pool2d --pass fwd,bwd --threads 1,2 --plan default
BENCH_INTERPOLATE_CASES := interpolate --pass fwd,bwd --threads 1,2 --plan default
BENCH_SOFTMAX_CASES     := softmax --pass fwd,bwd --log no,yes --threads 1,2 --plan default
BENCH_OPTIMIZER_CASES   := adam,sgd,lion,vector_norm --threads 1,2 --plan default
BENCH_REDUCE_CASES      := reduce --pass fwd,bwd --threads 1,2 --plan default
BENCH_CROSS_ENTROPY_CASES := cross_entropy --pass fwd,bwd --threads 1,2 --plan default
BENCH_LINEAR_CROSS_ENTROPY_CASES := linear_cross_entropy --pass fwd,bwd --threads 1,2 --plan default
BENCH_EMBEDDING_CASES   := embedding --pass fwd,bwd --threads 1,2 --plan default
BENCH_ATTENTION_CASES   := attention --pass fwd,bwd --threads 1,2 --plan default
BENCH_MATMUL_CASES      := matmul --threads 1,2 --layout nn,nt --plan default
BENCH_LAYERNORM_LINEAR_CASES := layernorm_linear --pass fwd,bwd --threads 1,2 --plan default
BENCH_RMSNORM_LINEAR_CASES   := rmsnorm_linear --pass fwd,bwd --threads 1,2 --plan default
BENCH_CONV1D_CASES      := conv1d --pass fwd,bwd --threads 1,2 --plan default
BENCH_CONV2D_CASES      := conv2d --pass fwd,bwd --threads 1,2 --plan default

# How many calls `make properties` draws for each property and operation.
CASES := 10000

# What `make kernels-hip` compiles for.
ARCH := gfx942

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

.PHONY: help build demo functions test test-full grids coverage properties fuzz mutants bench accuracy kernels gpu gpu-pack gpu-dry
.PHONY: reproduce kernels-hip oldest-torch wheel docs format check clean venv

help:       ## print this list
	@sed -n 's/^\([a-z -]*\): .*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: venv ## build/release/isobit, and .venv with the available peers
	@cmake --preset release
	@cmake --build --preset release

demo: build ## a tour of everything in a few minutes, with an HTML report
	@tools/demo

test: build ## everyday tests and checks
	@$(PYTHON) tools/suite.py test --started $(STARTED)

test-full: build ## the wheel, long tests, formatting; by turns sanitizers, some mutants, another compiler, architecture or GPU
	@tools/bootstrap test-full
	@$(PYTHON) tools/suite.py test-full --started $(STARTED)

grids: build ## the C++ tests on all cases; make test takes one in three of those that only repeat
	@ctest --preset grids

reproduce: build ## three small trainings on every instruction set, with 1 and 2 threads, eager and compiled, on ARM and an emulated GPU: one table of hashes
	@$(PYTHON) tools/reproduce.py

coverage: build ## lines and branches of the C++ that the tests execute
	@$(PYTHON) tools/suite.py coverage --started $(STARTED)

properties: build ## property tests: CASES=10000 calls for each property and operation, under a minute
	@RC_PARAMS="max_success=$(CASES)" build/release/isobit_tests --gtest_filter='*Properties*'

mutants: build ## plant every defect of tests/mutants/, run the tests that must find it, write the log
	@$(PYTHON) tools/mutants.py --all --log

bench: build ## time every operator beside its peers; results in bench/results/
	@$(PYTHON) tools/bench.py $(BENCH_LAYERNORM_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_RMSNORM_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_ELEMENTWISE_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_ACTIVATION_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_TRANSPOSE_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_ROPE_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_SCAN_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_ATTENTION_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_MATMUL_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_LAYERNORM_LINEAR_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_RMSNORM_LINEAR_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_CONV1D_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_CONV2D_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_SOFTMAX_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_CHANNEL_NORM_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_POOL2D_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_INTERPOLATE_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_CROSS_ENTROPY_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_EMBEDDING_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_OPTIMIZER_CASES)
	@$(PYTHON) tools/bench.py $(BENCH_REDUCE_CASES)

accuracy: build ## the full accuracy grid and its tables; takes long
	@$(ISOBIT) verify $(ACCURACY_CASES) --out build/accuracy
	@$(ISOBIT) verify $(ACCURACY_LONG_CASES) --out build/accuracy/long
	@$(PYTHON) tools/tables.py accuracy build/accuracy/verify.jsonl build/accuracy/long/verify.jsonl

functions: ## every function of every float against the C library in double; takes long
	@cmake --preset release
	@cmake --build --preset release --target isobit_functions
	@build/release/isobit_functions

fuzz: ## RUNS=10000000 calls of the C ABI by libFuzzer; the corpus is kept in build/fuzz
	@tools/bootstrap build test test-full
	@cmake --preset fuzz
	@cmake --build --preset fuzz
	@mkdir -p build/fuzz/corpus
	@ASAN_OPTIONS=$(FUZZ_ASAN) build/fuzz/fuzz_c_abi -runs=$(RUNS) $(FUZZ_FLAGS) build/fuzz/corpus tests/fuzz/corpus

kernels: build ## build/release/libisobit_cuda.so, and the registers of its kernels
	@$(PYTHON) tools/kernels.py

kernels-hip: build ## build/release/libisobit_hip.so for AMD's GPUs: ARCH=gfx942, or several, or all
	-@tools/bootstrap hip
	@$(PYTHON) tools/kernels_hip.py --arch $(ARCH)

docs: venv  ## build the documentation into build/docs; a broken link is an error
	@tools/docs

wheel: build ## dist/: one wheel for every Python and PyTorch, with kernels for all GPUs; and the sdist
	@tools/wheel

oldest-torch: build ## test isobit.torch with PyTorch 2.11 for CUDA; downloads gigabytes once
	@tools/oldest_torch

gpu: ## PHASE=test|sanitize|bench on a machine with a GPU, with the programs of `make gpu-pack`; OUT=folder
	@[ -e build/gpu.tar.xz ] || $(MAKE) --no-print-directory gpu-pack
	@python3 tools/gpu.py $(PHASE) --out $(OUT)

gpu-pack: kernels ## write build/gpu.tar.xz, the programs to copy to a machine with a GPU (no compiler needed there)
	@$(PYTHON) tools/gpu.py --pack

gpu-dry: kernels ## all GPU phases with the emulator, in a copy of what gpu-pack collects
	@$(PYTHON) tools/gpu.py --dry

format: venv ## format C++ and Python
	@.venv/bin/clang-format -i $(CXX_FILES)
	@.venv/bin/ruff format --quiet
	@.venv/bin/ruff check --quiet --fix

check: venv ## check formatting, include rules, dead paths and what clang says of changed sources
	@.venv/bin/clang-format --dry-run -Werror $(CXX_FILES)
	@.venv/bin/ruff format --quiet --check
	@.venv/bin/ruff check --quiet
	@$(PYTHON) tools/check_layers.py
	@$(PYTHON) tools/check_paths.py
	@$(PYTHON) tools/check_clang.py

clean:      ## remove build/; .venv stays
	@rm -rf build

venv:
	@tools/bootstrap build test
	@tools/venv
