# make fit        install into .venv, then train with adversarial negatives on the text that gensim ships; the run is
#                 runs/ace, or runs/TIME-skipgram-ace if there is a runs/ace
# make test       install the test tools too, then check style and types and run the tests; with AREA only the tests
#                 of one folder of tests/unit and of its contract: make test AREA=negatives
# make test-quick run the tests that train nothing, build nothing and kill nothing, in under two minutes; also with AREA
# make test-slow  run all of tests/slow, or one folder of it: make test-slow AREA=kernels
# make docs       build the site in docs/_build
# make look       render a report at the width of a phone and of a desktop: make look REPORT=runs/x/report.html
# make clean      remove .venv and every build product; keep runs/
#
# PYTHON names the interpreter of .venv: make fit PYTHON=python3.12
# CXX names the C++ compiler of the core; EMBTRAIN_CORE=off disables the core

PYTHON ?= python3
# AREA=doors needs NumPy 1, so it has an environment of its own.
VENV   := .venv$(if $(filter doors,$(AREA)),-doors)
BIN    := $(VENV)/bin
# Each worker begins with one half of the tests, so that it makes the fixtures of a file once, and takes tests of the
# other when it has finished.
SPREAD := -n 2 --dist worksteal
# Tests of one file share fixtures. Two files can run in parallel: they measure CPU seconds, the memory of their own
# processes, and wall time relative to the load. Other areas measure plain times.
SPREAD_trust := -n 2 --dist loadfile
# The contract tests of an area. `make test AREA=kernels` runs tests/unit/kernels and these.
CONTRACT_kernels   := kernels
CONTRACT_losses    := losses losses_optima continuous
CONTRACT_models    := triple_models
CONTRACT_negatives := sources
CONTRACT_train     := combinations optima
# Slow tests of an area in files whose other tests `make test` runs.
SLOW_ace       := tests/unit/negatives/test_ace_shared.py
SLOW_compare   := tests/unit/experiment/test_compare.py tests/unit/experiment/test_reproduce.py \
                  tests/unit/experiment/test_translation_task.py tests/unit/cli/bench/test_bench.py
SLOW_kernels   := tests/unit/train/test_fused.py
SLOW_parity    := tests/unit/models/test_subword.py tests/unit/models/test_start.py tests/unit/models/test_cbow.py
SLOW_recipes   := tests/unit/data/test_hierarchy.py
SLOW_samplers  := tests/unit/evaluate/test_sampling.py tests/contract/test_combinations.py tests/contract/test_optima.py
SLOW_scale     := tests/unit/train/group/sharded tests/unit/experiment/test_joining.py tests/unit/experiment/test_executors.py
SLOW_trust     := tests/unit/experiment/test_diverged.py
SLOW_tutorials := tests/unit/docs/test_tutorials.py tests/unit/docs/test_docs_site.py tests/unit/docs/test_gallery.py
TESTS = $(if $(AREA),tests/unit/$(AREA) $(CONTRACT_$(AREA):%=tests/contract/test_%.py),--ignore tests/slow)
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q

.PHONY: fit test test-quick test-slow docs look clean supported-python

# The core is built while pip waits for the network.
MAKEFLAGS += --jobs=2

# Tests start many processes, which would compile the package each time.
test test-quick test-slow: export PYTHONDONTWRITEBYTECODE :=

# Require the compiled core if there is a compiler: without it the tests would exercise the fallback.
test test-quick test-slow: export EMBTRAIN_CORE ?= $(if $(shell command -v c++ 2>/dev/null),require,auto)

fit: $(VENV)/.ready $(VENV)/.core
	$(BIN)/embtrain fit --negatives ace$(if $(wildcard runs/ace),, --out runs/ace)

test: $(VENV)/.ready-test $(VENV)/.core
	$(if $(AREA),,$(BIN)/ruff check .)
	$(if $(AREA),,$(BIN)/mypy)
	$(PYTEST) $(SPREAD) $(TESTS)

test-quick: $(VENV)/.ready-test $(VENV)/.core
	$(PYTEST) $(SPREAD) -m "not slow and not long" $(TESTS)

test-slow: $(VENV)/.ready-$(if $(filter doors,$(AREA)),doors,peers) $(VENV)/.core
	$(PYTEST) $(SPREAD_$(AREA)) -m slow $(if $(AREA),tests/slow/$(AREA) $(SLOW_$(AREA)),tests)

docs: $(VENV)/.ready-test
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo docs/_build/index.html

# REPORT defaults to the newest report. Pictures are cropped to the height of the page.
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

supported-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "embtrain needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
	       "Name another one, such as: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }

# A bare comma would split the arguments of `call`.
comma := ,

# One call of pip for everything: a second one without our range of torch could install a build several times as large.
define install
@echo "installing into $(VENV) (once; one to three minutes, about 1.5 GB)"
@$(PYTHON) -m venv $(VENV)
@EMBTRAIN_CORE=off $(BIN)/python -m pip install -qq --disable-pip-version-check -e '$(1)'
@touch $@
endef

$(VENV)/.ready: pyproject.toml | supported-python
	$(call install,.)

$(VENV)/.ready-test: pyproject.toml | supported-python
	$(call install,.[test$(comma)docs])
	@touch $(VENV)/.ready

$(VENV)/.ready-peers: pyproject.toml | supported-python
	$(call install,.[test$(comma)docs$(comma)peers])
	@touch $(VENV)/.ready $(VENV)/.ready-test

$(VENV)/.ready-doors: pyproject.toml | supported-python
	$(call install,.[test$(comma)doors])

# Separate from pip, which would hide the output and does not notice edited sources. Without a core no stamp is written,
# so the next make finds a compiler that is installed later.
$(VENV)/.core: pyproject.toml build_core.py embtrain/kernels/core/build_info.py $(wildcard embtrain/kernels/source/* embtrain/kernels/source/*/* embtrain/kernels/source/*/*/*) | supported-python
	@echo "building the compiled core (about a minute on two cores)"
	@set -e; built=$$($(PYTHON) build_core.py); test -z "$$built" || { echo "$$built"; mkdir -p $(VENV); touch $@; }

clean:
	rm -rf .venv .venv-doors build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find embtrain tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf embtrain/kernels/_core_*.so embtrain/kernels/.building-*
