# Nothing but Python >= 3.11 is needed: `make compare` on a fresh clone makes the environment, fetches the rest, and runs.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONTRIB := $(VENV)/.contrib

# Some containers set it: each of some thousand Python processes of a test run would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup compare test test-slow unit proofs mutation lint format clean

setup: $(STAMP)
	@$(RUN)/oncebench doctor --fetch

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "oncebench needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 5; }
	@test -x $(RUN)/pip || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python3 cannot make $(VENV); on Debian and Ubuntu install python3-venv"; exit 5; }
	@echo "making $(VENV) (downloads 0.6 GB; one to three minutes)" >&2
	@$(RUN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[lab,test,bench,profile]'
	@touch $@

# Packages with sinks of their own. `make compare` does not need them.
$(CONTRIB): $(STAMP) $(wildcard contrib/*/pyproject.toml)
	@$(RUN)/python -m pip install --quiet --no-compile --disable-pip-version-check $(patsubst %,--editable=%,$(wildcard contrib/*))
	@touch $@

compare: setup
	@$(RUN)/oncebench compare

# More processes than cores: many tests wait for a server. The slow ones of tests/unit are neighbours, so a process
# without work takes some of another. The second part goes in the order of the folders, longest first: by itself
# pytest-xdist starts the files with few, long tests last.
test: setup $(CONTRIB)
	@$(RUN)/python -m pytest -n 3 --dist worksteal tests/unit
	@$(RUN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations 15 -m 'not slow' \
	  tests/contract tests/integration tests/proofs contrib

test-slow: setup $(CONTRIB)
	@$(RUN)/python -m pytest -v -m slow tests/contract tests/integration contrib

unit: $(CONTRIB)
	@$(RUN)/python -m pytest -n 2 --dist worksteal -m 'not integration' tests/unit contrib

# What docs/why_believe_it.md and docs/protocol_model.md show: ten thousand damaged histories (some hundreds for both
# auditors), every mutant, every search of the protocols.
proofs: $(STAMP)
	@ONCEBENCH_EXAMPLES=10000 $(RUN)/python -m pytest --timeout 7200 --durations 12 tests/proofs/test_audit_injection.py
	@ONCEBENCH_EXAMPLES=10000 $(RUN)/python -m pytest --timeout 7200 tests/proofs/test_sql_auditor.py tests/proofs/test_mutants.py
	@$(RUN)/python -m proofs.protocol_model --no-traces

# The auditor's code, changed in one place at a time. Few examples: what a change breaks, few show.
mutation: $(STAMP)
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[lab,mutation]'
	@ONCEBENCH_EXAMPLES=3 $(RUN)/python proofs/mutants/mutation_run.py
	@$(RUN)/python proofs/mutants/mutation_score.py --survivors

lint: $(CONTRIB)
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-cache

format: $(STAMP)
	@$(RUN)/ruff check --fix .
	@$(RUN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants
