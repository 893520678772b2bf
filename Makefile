# make demo   the main job: pocket model, four domains, four certificates, one report
# make test   lint, types, tests
# Both make their own virtual environment. PYTHON=python3.12 chooses another interpreter; TORCH_INDEX= takes torch from the default index.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
RUNS ?= runs
BIN := $(VENV)/bin
export OMP_WAIT_POLICY := PASSIVE

.PHONY: demo test lint types pytest slow test-ray install clean

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
	$(BIN)/python -m pytest

slow: install
	$(BIN)/python -m pytest -m slow

# Ray is an extra: 240 MB that only clusters need.
test-ray: install
	$(BIN)/pip install --quiet -e '.[ray]'
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
	rm -rf $(VENV) build *.egg-info
