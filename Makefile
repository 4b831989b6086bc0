# Two commands: `make reproduce` runs the whole pipeline on the built-in sample, `make test` runs lint, types and tests.
# Both set up everything they need in .venv; a machine with git, make and Python 3.11 to 3.14 is enough.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
EXTRAS ?= dvc,kubeflow,s3,ssh,tune,dev
comma = ,
INSTALLED = $(VENV)/installed-$(subst $(comma),-,$(EXTRAS))
# Where no GPU is seen, PyTorch's own index has a build without 3 GB of CUDA; TORCH_INDEX= takes that of pip's index.
TORCH_INDEX ?= $(shell command -v nvidia-smi >/dev/null || echo https://download.pytorch.org/whl/cpu)
ANSWERS = import signal, sys, urllib.request; signal.alarm(4); urllib.request.urlopen(sys.argv[1])
RUN = PATH="$(abspath $(VENV))/bin:$$PATH" HF_HUB_OFFLINE=1

# Files of tests run side by side, each on one core: of several threads PyTorch would take all cores for every one. One more
# than two cores, as a part of the time is waiting for servers and processes.
# A worker that crashes ends the run with the test's name: replaced, it would leave the others waiting for ever.
SIDE_BY_SIDE = OMP_NUM_THREADS=1
WORKERS ?= --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations 10

OVERLAY ?= single-node
# What tests run for real, beside kubectl; where one is absent, its tests say so and are skipped.
TEST_PROGRAMS = promtool sshd chromium
TEST_PACKAGES = prometheus openssh-server chromium

.PHONY: reproduce checked docs test test-full test-kill fuzz lint render compile install clean test-tools deploy undeploy images images-try locks audit

reproduce: install  ## the built-in sample, from articles to a distilled retriever, its index and a report
	$(RUN) dvc repro
	$(RUN) dvc metrics show
	@echo "The report: artifacts/evaluate/evaluation/report.html"
	@echo "Ask it something: $(VENV)/bin/stillhouse search why do ships carry accurate clocks"

test: checked  ## lint, types and every test but the longest
	$(RUN) $(SIDE_BY_SIDE) pytest $(WORKERS) -m "not sample and not long"

test-full: checked  ## the same, the longest too: the whole sample, a refresh at every level, a disk that is full at every moment
	$(RUN) $(SIDE_BY_SIDE) pytest $(WORKERS)

KILLS ?= 20
test-kill: install  ## every step and a refresh, killed KILLS times at random moments; what they leave must be a calm run's
	STILLHOUSE_KILLS=$(KILLS) $(RUN) pytest tests/survival tests/releases/refresh/test_killed_refresh.py --timeout=36000

FUZZED ?= article-jsonl article-tree beir dpr evaluator-json html-tree msmarco params parquet reqa run squad tables
SECONDS_EACH ?= 60
fuzz: install  ## every reader fed by a coverage-guided fuzzer, SECONDS_EACH each
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS),fuzz]"
	for name in $(FUZZED); do $(RUN) python tests/corpus/fuzz_readers.py $$name --seconds $(SECONDS_EACH) || exit 1; done

checked: install
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint compile

lint: install
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

docs: install  ## the documentation as a site, in build/site; needs no network
	$(RUN) mkdocs build --strict
	@echo "To read it: python3 -m http.server --directory build/site"

render: install  ## dvc.yaml and components/ from the graph and the steps
	$(RUN) python -m stillhouse.pipeline.dvc_file params.yaml > dvc.yaml.new
	mv dvc.yaml.new dvc.yaml
	$(RUN) python -m stillhouse.kubeflow.pipelines.components

compile: install  ## manifests/pipelines, which git does not keep: overlays with pipelines need them
	$(RUN) stillhouse pipeline compile

deploy: compile  ## everything that Stillhouse needs on the cluster that kubectl points at: OVERLAY=single-node, gpu, …
	kubectl apply --server-side -k manifests/overlays/$(OVERLAY)

undeploy: compile  ## removes everything, including unfinished work
	kubectl delete --ignore-not-found -k manifests/overlays/$(OVERLAY)

images:  ## both images from a Debian base made here, as root; BASE, VARIANT and more as docs/deploy.md says
	images/build

images-try: compile  ## what was built with VARIANT=cpu does its work on a read-only root, without a network; needs root
	images/try

locks: install  ## the images' locks, resolved anew
	$(VENV)/bin/python -m pip install --quiet uv
	$(RUN) images/locks/resolve

audit:  ## known vulnerabilities of the locks; fails on one that a later version mends
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet pip-audit
	$(PYTHON) images/locks/audit $(VENV)/audit/bin/pip-audit

test-tools:  ## promtool, sshd and Chromium, from Debian; needs root
	@PATH="$$PATH:/usr/sbin"; for program in $(TEST_PROGRAMS); do command -v $$program >/dev/null || missing=yes; done; \
	if [ -n "$$missing" ]; then apt-get update && apt-get install -y --no-install-recommends $(TEST_PACKAGES); fi

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@[ -z "$(TORCH_INDEX)" ] || { ($(VENV)/bin/python -c "$(ANSWERS)" "$(TORCH_INDEX)/torch/") 2>/dev/null \
	&& $(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --index-url "$(TORCH_INDEX)" torch; } \
	|| echo "$(TORCH_INDEX) cannot be reached: installing PyTorch from pip's own index"
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf artifacts .stillhouse
