# make fit        install into .venv, then train with adversarial negatives on the text that gensim ships
# make test       install the test tools too, then style, types and tests
# make test-slow  the long tests: all of tests/slow, or one folder of it: make test-slow AREA=kg
# make clean      remove .venv and every build product; runs/ stays
#
# PYTHON names the interpreter that .venv is made of: make fit PYTHON=python3.12

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q

.PHONY: fit test test-slow clean

fit: $(VENV)/.ready
	$(BIN)/embtrain fit --negatives ace

test: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -n 2

test-slow: $(VENV)/.ready-test
	$(PYTEST) -m slow tests/slow/$(AREA)

# One call of pip for everything: a later one without our range of torch could bring a build several times as large.
define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "embtrain needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
       "Name another one, such as: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
@echo "installing into $(VENV) (once; one to three minutes, about 1.5 GB)"
@$(PYTHON) -m venv $(VENV)
@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '$(1)'
@touch $@
endef

$(VENV)/.ready: pyproject.toml
	$(call install,.)

$(VENV)/.ready-test: pyproject.toml
	$(call install,.[test])
	@touch $(VENV)/.ready

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find embtrain tests -name __pycache__ -type d -prune -exec rm -rf {} +
