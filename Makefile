# make fit        install into .venv, then train with adversarial negatives on the text that gensim ships; the run is
#                 runs/ace, or runs/TIME-skipgram-ace if there is a runs/ace
# make test       install the test tools too, then style, types and tests; of one folder of tests/unit, the tests alone
#                 and those of its contract: make test AREA=negatives
# make test-quick the tests that train nothing, build nothing and kill nothing, in under two minutes; also with AREA
# make test-slow  the long tests: all of tests/slow, or one folder of it: make test-slow AREA=kg
# make docs       the pages as a site, in docs/_build
# make look       pictures of a report at the width of a phone and of a desk: make look REPORT=runs/x/report.html
# make clean      remove .venv and every build product; runs/ stays
#
# PYTHON names the interpreter that .venv is made of: make fit PYTHON=python3.12
# CXX names the C++ compiler of the fast core; EMBTRAIN_CORE=off does without one

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# A file's tests share what they have made, and files bear a neighbour: they count CPU seconds, the memory of processes
# of their own, and wall clocks by how busy the machine is. Other areas time things.
SPREAD_trust := -n 2 --dist loadfile
# The contract tests of an area. `make test AREA=kernels` runs tests/unit/kernels and these.
CONTRACT_kernels   := kernels
CONTRACT_losses    := losses losses_optima continuous
CONTRACT_models    := triple_models
CONTRACT_negatives := sources
CONTRACT_train     := combinations optima
TESTS = $(if $(AREA),tests/unit/$(AREA) $(CONTRACT_$(AREA):%=tests/contract/test_%.py))
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q

.PHONY: fit test test-quick test-slow docs look clean

# A test that ran without the core where one could be had would have tested something else.
test test-quick test-slow: export EMBTRAIN_CORE ?= $(if $(shell command -v c++ 2>/dev/null),require,auto)

fit: $(VENV)/.ready $(VENV)/.core
	$(BIN)/embtrain fit --negatives ace$(if $(wildcard runs/ace),, --out runs/ace)

test: $(VENV)/.ready-test $(VENV)/.core
	$(if $(AREA),,$(BIN)/ruff check .)
	$(if $(AREA),,$(BIN)/mypy)
	$(PYTEST) -n 2 $(TESTS)

test-quick: $(VENV)/.ready-test $(VENV)/.core
	$(PYTEST) -n 2 -m "not slow and not long" $(TESTS)

test-slow: $(VENV)/.ready-peers $(VENV)/.core
	$(PYTEST) $(SPREAD_$(AREA)) -m slow tests/slow/$(AREA)

docs: $(VENV)/.ready-test
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo docs/_build/index.html

# The newest report unless REPORT names one. Pictures are as high as the page: below it, rows of paper are cut off.
CHROMIUM ?= chromium
REPORT   ?= $(shell ls -t runs/*/report.html 2>/dev/null | head -n 1)
WIDTHS   := 390 1280

look: $(VENV)/.ready
	@command -v $(CHROMIUM) >/dev/null || { echo "$(CHROMIUM) is not there; Debian has it: apt install chromium" >&2; exit 4; }
	@test -f "$(REPORT)" || { echo "no report: make look REPORT=runs/.../report.html" >&2; exit 2; }
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; page=$$(realpath "$(REPORT)"); \
	for width in $(WIDTHS); do \
	  picture="$${page%.html}-$$width.png"; \
	  $(CHROMIUM) --headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run \
	    --hide-scrollbars --user-data-dir="$$scratch" --window-size=$$width,40000 --screenshot="$$picture" \
	    "file://$$page" 2>"$$scratch/said" || { cat "$$scratch/said" >&2; exit 1; }; \
	  $(BIN)/python -c 'import sys; from matplotlib import image; p = image.imread(sys.argv[1]); \
	    drawn = (p != p[-1:, :1]).any((1, 2)).nonzero()[0]; \
	    image.imsave(sys.argv[1], p[:drawn[-1] + 30].copy(order="C"))' "$$picture"; \
	  echo "$$picture"; \
	done

# A bare comma would part the arguments of `call`.
comma := ,

# One call of pip for everything: a later one without our range of torch could bring a build several times as large.
define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "embtrain needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
       "Name another one, such as: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
@echo "installing into $(VENV) (once; one to three minutes, about 1.5 GB)"
@$(PYTHON) -m venv $(VENV)
@EMBTRAIN_CORE=off $(BIN)/python -m pip install -qq --disable-pip-version-check -e '$(1)'
@touch $@
endef

$(VENV)/.ready: pyproject.toml
	$(call install,.)

$(VENV)/.ready-test: pyproject.toml
	$(call install,.[test$(comma)docs])
	@touch $(VENV)/.ready

$(VENV)/.ready-peers: pyproject.toml
	$(call install,.[test$(comma)docs$(comma)peers])
	@touch $(VENV)/.ready $(VENV)/.ready-test

# By itself and not inside pip, which would hide its lines and knows nothing of edited sources. No stamp without a core:
# a compiler that is installed later is found by the next make.
$(VENV)/.core: pyproject.toml build_core.py embtrain/kernels/core/build_info.py $(wildcard embtrain/kernels/source/* embtrain/kernels/source/*/* embtrain/kernels/source/*/*/*)
	@echo "building the compiled core (about twenty seconds)"
	@set -e; built=$$($(PYTHON) build_core.py); test -z "$$built" || { echo "$$built"; mkdir -p $(VENV); touch $@; }

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find embtrain tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf embtrain/kernels/_core_*.so embtrain/kernels/.building-*
