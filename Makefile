# make demo and make test do all of their own set-up; nothing has to be installed by hand.
#   make demo      a daemon, a recording, a script and a real model, the console
#   make check     linters, types, layers, unit and console tests but the longest: for every edit
#   make test      linters, types, layers, all unit and console tests, one scenario of each promise
#   make test-all  every test: the other scenarios, each point of a kill, each seed, each row of every table
#   make test-consumers   rows as verl and LLaMA-Factory read them, each installed by itself
#   make test-foreign     environments of the package verifiers, by its own examples
#   make test-harbor      trajectories and tasks as Harbor reads them; it needs Python 3.12
#   make test-ray         workers and trainers on two nodes of a Ray cluster, which is installed for it
#   make soak      daemon, workers and engines killed over and over, for long
#   make bench     figures as JSON in bench/results/
#   make release   wheel and sdist in dist/, checked as those will use them who have no checkout
#   make image     a container image of that wheel, where podman, docker or buildah is there
.DEFAULT_GOAL := help
# Thousands of short processes import the same modules: compiled ones are kept wherever make runs.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo check test test-all test-consumers test-foreign test-harbor test-ray quick fast promises rest soak bench size lint types layers system test-system engine pictures release image clean

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= python3
TORCH_CPU   := torch==2.13.0+cpu
TORCH_INDEX := https://download.pytorch.org/whl/cpu
# Debian package and the command it brings.
SYSTEM := tmux:tmux git:git bubblewrap:bwrap
# What only tests need (ScienceWorld runs in Java): the tracer of the power cuts is C; hosts over SSH are tried with a real sshd.
# `houston rollout html` is tried in Chromium where there is one (Debian: chromium); those tests say that they skip.
TEST_SYSTEM := gcc:cc libc6-dev:cc openssh-client:ssh openssh-server:/usr/sbin/sshd default-jre-headless:java

help:
	@sed -n '2,12p' $(MAKEFILE_LIST) | sed 's/^# *//'

# --- set-up ------------------------------------------------------------------------------------

test-system: SYSTEM := $(TEST_SYSTEM)
system test-system:
	@missing=""; \
	for pair in $(SYSTEM); do \
	  command -v $${pair#*:} >/dev/null 2>&1 || missing="$$missing $${pair%%:*}"; \
	done; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; \
	elif command -v apt-get >/dev/null && sudo -n true 2>/dev/null; then \
	  sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; \
	else \
	  echo "Houston needs the system packages$$missing, and this user may not install them: ask an administrator for them, then run make again." >&2; \
	  exit 1; \
	fi

# Torch first and alone: where there is no GPU its CPU build is taken, not gigabytes of CUDA. An own
# index is asked first (a mirror, or wheels in a folder), then PyTorch's.
$(BIN)/.base: pyproject.toml | system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Houston needs Python 3.11 or newer; $(PYTHON) is older. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Houston into $(VENV) (about two minutes the first time)"
	@$(BIN)/pip install -q --upgrade pip
	@if command -v nvidia-smi >/dev/null 2>&1; then $(BIN)/pip install -q torch; \
	elif $(BIN)/pip install -q '$(TORCH_CPU)' 2>/dev/null; then \
	  echo "installed $(TORCH_CPU) from the configured package index"; \
	elif $(BIN)/pip install -q --retries 1 --timeout 15 --extra-index-url $(TORCH_INDEX) '$(TORCH_CPU)' 2>/dev/null; then \
	  echo "installed $(TORCH_CPU) from $(TORCH_INDEX)"; \
	else \
	  echo "$(TORCH_CPU) is on no index that can be reached ($(TORCH_INDEX) neither): installing torch as pip finds it; from PyPI that is 5 GB with CUDA" >&2; \
	  $(BIN)/pip install -q torch; \
	fi
	@$(BIN)/pip install -q -e '.[local]'
	@touch $@

$(BIN)/.dev: $(BIN)/.base | test-system
	@$(BIN)/pip install -q -e '.[local,train,dev,envs,memory,evaluate,trackers,otel,notify,dialects,inspect,openenv,openenv-serve,reasoning-gym,store]'
	@touch $@

engine: $(BIN)/.base
	@$(BIN)/houston doctor --fetch-model --install-engine

# --- what people run ---------------------------------------------------------------------------

demo: $(BIN)/.base
	@$(BIN)/houston demo $(ARGS)

check:
	$(call timed,check,lint types layers quick)

test:
	$(call timed,test,lint types layers fast promises)

test-all:
	$(call timed,test-all,test rest)

# Runs targets and notes their seconds for `make size`.
define timed
@start=$$(date +%s); $(MAKE) --no-print-directory $(2) && \
  $(BIN)/python bench/size.py --tier $(1) $$(($$(date +%s) - start))
endef

lint: $(BIN)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.dev
	$(BIN)/mypy

layers: $(BIN)/.dev
	$(BIN)/lint-imports

# How many at a time keep two cores busy: console and unit tests wait half of the time, others for
# servers and models. Where very much fails something else is wrong, and the run ends instead of
# waiting for every time limit. One server that does not start fails some twenty tests: no reason to
# end.
PROCESSES := 4
fast quick: PROCESSES := 5
PYTEST = $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --maxfail 60

# Tests beside each other get in each other's way: what fails then must pass alone, also what a part
# of one file would leave out.
fast: $(BIN)/.dev
	$(call and_alone,--tier fast tests)

quick: $(BIN)/.dev
	$(call and_alone,--tier check tests)

promises: $(BIN)/.dev engine
	$(call and_alone,--tier promises tests)

rest: $(BIN)/.dev engine
	$(call and_alone,--tier rest $(if $(PART),--part $(PART)) tests)

define and_alone
$(PYTEST) $(1) $(ARGS) || \
  { test $$? = 1 && $(BIN)/pytest --last-failed --last-failed-no-failures none $(1) $(ARGS) --part 1/1; }
endef

# Consumers of exports, each with its own code in an environment of its own: their packages fight
# ours, and bring CUDA unless they are taken without what they depend on. Where one cannot be had,
# nothing of it is proved, and that ends here.
CONSUMERS := .venv-consumers
CONSUMER_verl          := verl==0.9.1
CONSUMER_llama-factory := llamafactory==0.9.5

$(CONSUMERS)/%/.made: tests/consumers/*.txt
	@rm -rf $(@D); echo "installing $(CONSUMER_$*) into $(@D)"
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --upgrade pip
	@$(@D)/bin/pip install -q '$(TORCH_CPU)' 2>/dev/null || $(@D)/bin/pip install -q '$(firstword $(subst +, ,$(TORCH_CPU)))' || \
	  { echo "torch cannot be had, so $(CONSUMER_$*) reads nothing here and its rows are not proved." >&2; exit 1; }
	@$(@D)/bin/pip install -q --no-deps '$(CONSUMER_$*)' && \
	  $(@D)/bin/pip install -q '$(firstword $(subst +, ,$(TORCH_CPU)))' -r tests/consumers/$(subst -,_,$*).txt || \
	  { echo "$(CONSUMER_$*) cannot be had, so its rows are not proved." >&2; exit 1; }
	@touch $@

test-consumers: $(BIN)/.dev $(CONSUMERS)/verl/.made $(CONSUMERS)/llama-factory/.made
	HOUSTON_CONSUMERS=$(CURDIR)/$(CONSUMERS) $(BIN)/pytest tests/consumers/check_verl.py tests/consumers/check_llama_factory.py $(ARGS)

CONSUMER_harbor := harbor==0.26.0
# One that runs: a version manager puts names of Pythons into the path that it then refuses.
HARBOR_PYTHON ?= $(firstword $(foreach name,python3.14 python3.13 python3.12,$(shell $(name) -c 'print("$(name)")' 2>/dev/null)) $(PYTHON))

$(CONSUMERS)/harbor/.made: Makefile
	@rm -rf $(@D); echo "installing $(CONSUMER_harbor) into $(@D)"
	@$(HARBOR_PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q '$(CONSUMER_harbor)' || \
	  { echo "$(CONSUMER_harbor) cannot be had ($(HARBOR_PYTHON) must be Python 3.12 or newer), so its reading is not proved." >&2; exit 1; }
	@touch $@

test-harbor: $(BIN)/.dev $(CONSUMERS)/harbor/.made
	HOUSTON_CONSUMERS=$(CURDIR)/$(CONSUMERS) $(BIN)/pytest tests/consumers/check_harbor.py $(ARGS)

# The package verifiers pins another mcp than ours, so it is installed by itself.
$(CONSUMERS)/verifiers/.made:
	@rm -rf $(@D); echo "installing verifiers into $(@D)"
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q 'verifiers>=0.4,<0.5'
	@touch $@

test-foreign: $(BIN)/.dev $(CONSUMERS)/verifiers/.made
	VERIFIERS_PYTHON=$(CURDIR)/$(CONSUMERS)/verifiers/bin/python $(BIN)/pytest \
	  tests/integration/verifiers $(ARGS)

# Ray is not part of what developers install, so that everything else is tried without it.
test-ray: $(BIN)/.dev
	@$(BIN)/pip install -q -e '.[ray,ray-train]'
	$(BIN)/pytest tests/faults/test_ray_nodes.py tests/faults/test_ray_network.py \
	  tests/training/sft/test_ray_launch.py $(ARGS)

# Kills for as long as ARGS say (--minutes 40 --kills 1200 --seed 1); the same command goes on
# where it was broken off. The sum is kept in bench/results/soak.json.
soak: $(BIN)/.dev
	$(BIN)/python -m tests.faults.soak $(ARGS)

# One is a part of another, one is given a commit to measure beside.
bench: $(BIN)/.dev
	for script in $(filter-out bench/fanout_readers.py bench/old_and_new.py,$(wildcard bench/*.py)); do \
	  $(BIN)/python $$script || exit 1; \
	done

# Files, lines, functions, importers and circles of this checkout; COMMIT=C beside another one.
size: $(BIN)/.dev
	$(BIN)/python bench/size.py $(if $(COMMIT),--commit $(COMMIT))

# --- what is published -------------------------------------------------------------------------

RELEASE := .venv-release
$(RELEASE)/.made: Makefile | system
	@test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/pip install -q build twine
	@touch $@

# The version is the tag's; REPOSITORY=https://… says where the source is (else the remote `origin`
# does), PYTHONS="python3.11 python3.13" which interpreters try the wheel. Nothing is uploaded.
release: $(RELEASE)/.made
	@rm -rf dist
	HOUSTON_REPOSITORY=$(REPOSITORY) $(RELEASE)/bin/python -m build --outdir dist .
	$(RELEASE)/bin/python release/check_release.py dist $(PYTHONS:%=--python %)

# BASE=… is another image to build on, EXTRAS=[local] what is installed besides.
BUILDER := $(firstword $(foreach program,podman docker buildah,$(if $(shell command -v $(program)),$(program))))
image:
	@test -n "$(BUILDER)" || { echo "Neither podman, docker nor buildah is here, so no image was built: apt install podman" >&2; exit 1; }
	@ls dist/*.whl >/dev/null 2>&1 || { echo "dist/ has no wheel, so no image was built: make release" >&2; exit 1; }
	$(BUILDER) build $(if $(BASE),--build-arg BASE=$(BASE)) $(if $(EXTRAS),--build-arg EXTRAS=$(EXTRAS)) -t houston-agents -f release/Containerfile $(ARGS) dist

pictures: $(BIN)/.dev
	$(BIN)/python -m tests.console.pictures
	$(BIN)/python -m tests.console.animation
	$(BIN)/python -m tests.console.palette_pictures

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
