# Every target makes its own .venv and installs what it needs; a second run installs nothing.
# make test PYTHON=python3.12 chooses the interpreter, make test ARGS="-k cli -x" passes options to pytest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

ifeq ($(strip $(NEARWISE_DATA)),)
ifneq ($(wildcard ../shared/data/.),)
export NEARWISE_DATA := $(CURDIR)/../shared/data
endif
endif

# OpenBLAS and numba choose their code by the processor. These are the oldest that every machine of a kind can run,
# and round differently from what it runs by itself.
OTHER_CORE_x86_64 := Nehalem
OTHER_CORE_amd64 := Nehalem
OTHER_CORE_aarch64 := ARMV8
OTHER_CORE_arm64 := ARMV8
CORE ?= $(OTHER_CORE_$(shell uname -m))
NUMERICAL := linalg core methods papers model solving fixed_rank online named learners/test_fixed_rank_estimators.py learners/test_fixed_rank_safety.py \
  learners/test_kernel_reducer.py learners/test_online_learner.py benchmarks/test_decide.py benchmarks/test_hard_draws.py

.PHONY: demo test test-fast test-portable lint types coverage fuzz bench reproduce clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	@$(BIN)/nearwise demo $(ARGS)

# The workers of pytest use all cores: threads of their own would only wait for each other. Each worker begins with a
# part of the tests in their order, so that most files, their fixtures and their compiled loops are met by one alone.
# Python's own compiled files are kept whatever the environment says: without them every worker, and every process that
# a test starts, compiles all modules anew.
WORKERS = PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=$${OPENBLAS_NUM_THREADS:-1} OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1}
PYTEST = $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test: $(VENV)/.installed-test
	@$(WORKERS) $(PYTEST) $(ARGS)

# for daily work: the first case of every test that is quick
test-fast: $(VENV)/.installed-test
	@$(WORKERS) $(PYTEST) --fast $(ARGS)

# the numerical tests as on another processor; make test-portable CORE=Haswell chooses it
test-portable: $(VENV)/.installed-test
	@$(WORKERS) OPENBLAS_CORETYPE=$(CORE) NUMBA_CPU_NAME=generic $(PYTEST) $(NUMERICAL:%=tests/%) $(ARGS)

lint: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	@$(BIN)/mypy

# the tests that make test runs, with the lines and branches of src that they run; compiled loops do not count
coverage: $(VENV)/.installed-test
	@OPENBLAS_NUM_THREADS=$${OPENBLAS_NUM_THREADS:-1} $(BIN)/python -m pytest --numprocesses auto --cov --cov-report=term:skip-covered $(ARGS)

# a coverage-guided search for files that the readers do not refuse in one line; make fuzz SECONDS=600
fuzz: $(VENV)/.installed-test
	@$(INSTALL) --editable ".[fuzz]" || { echo "nearwise: atheris does not install here, so nothing was fuzzed" >&2; exit 1; }
	@$(BIN)/python tests/hostile/fuzz.py $(or $(SECONDS),60)

# make bench lists the benchmarks; make bench NAME=solver runs one
bench: $(VENV)/.installed-bench
	@$(BIN)/python -m benchmarks $(NAME) $(ARGS)

# the papers' experiments on the data sets at hand, and docs/results.md with their figures; after an interruption it
# goes on where it was, and rm -r docs/results/.finished makes it begin anew. make reproduce NAME="digits uci" runs some,
# and writes their files into results; python -m experiments lists them
reproduce: $(VENV)/.installed-bench $(VENV)/.installed-plot
	@OPENBLAS_NUM_THREADS=$${OPENBLAS_NUM_THREADS:-1} OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m experiments $(or $(NAME),--all --out docs/results --page docs/results.md --resume) $(ARGS)

clean:
	rm -rf $(VENV) build dist results report.html .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find src tests benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "nearwise: $(PYTHON) was not found; give another one: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "nearwise needs Python 3.11 or later, and $(PYTHON) is `$(PYTHON) --version 2>&1`;" \
	    "give another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "creating $(VENV) with `$(PYTHON) --version`"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@echo "installing nearwise into $(VENV)"
	@$(INSTALL) --editable .
	@touch $@

# a group of dependencies, which pip knows from 25.1 on: what is not in the package is no extra of it
$(VENV)/.installed-bench: $(VENV)/.installed pyproject.toml
	@echo "installing what the benchmarks compare with into $(VENV)"
	@$(INSTALL) "pip>=25.1"
	@$(INSTALL) --group bench
	@touch $@

$(VENV)/.installed-%: $(VENV)/.created pyproject.toml
	@echo "installing nearwise[$*] into $(VENV)"
	@$(INSTALL) --editable ".[$*]"
	@touch $@
