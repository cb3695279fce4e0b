# Every target sets up .venv by itself. PYTHON may name any interpreter from 3.11 on.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Other libraries to compare with. Without what they ask for (torchvision among it) but with what they import.
PEERS  := torchattacks foolbox adversarial-robustness-toolbox pyautoattack
PEERS  += eagerpy GitPython gitdb smmap six tqdm requests urllib3 idna certifi charset-normalizer setuptools

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-extras docs lint faults faults-ray audit protections reference bench-attacks bench-autoattack bench-accuracy bench-coverage bench-report bench-scale bench-costs bench-fuzzers papers clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Assay needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps onnx2torch
	@touch $@

$(VENV)/.peers: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps $(PEERS)
	@touch $@

# torchvision and timm without what they ask for: PyPI's torchvision wants a torch that is no CPU build.
$(VENV)/.extras: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,track,train,maite,docs,browser,ray,cloud]' datasets huggingface_hub 'moto[s3]' flask flask-cors
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps timm torchvision
	@touch $@

setup: $(READY)  ## the virtual environment in .venv

demo: $(READY)   ## train, attack, fuzz, fine-tune and report on the embedded digits
	$(BIN)/assay demo

lint: $(READY)   ## ruff and mypy, strict
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy

test: lint       ## what CI runs: lint, types and every fast test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile -m "not slow" --durations=15 --ignore tests/browser --ignore tests/extras

test-extras: $(VENV)/.extras ## the report in a browser, trackers, hubs, training libraries, every block of the docs
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile -m "not slow" --durations=15 tests/browser tests/extras

docs: $(VENV)/.extras ## the documentation site in site/
	$(BIN)/python -m tools.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

faults: $(READY) ## kills, full disks, hostile files, unruly models, and the longest of the verbs: in real processes
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -m slow tests/faults tests/e2e

faults-ray: $(VENV)/.extras ## workers killed again and again, drivers killed, nobody left: the long tests of Ray
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow tests/extras

audit: $(READY)  ## known holes, pins and licences of what we depend on, dangerous calls in what we wrote
	$(BIN)/python tools/audit.py

protections: $(READY) ## take each protection out and see a fault test fail (an hour)
	$(BIN)/python tools/protections.py

reference: $(VENV)/.peers ## agreement with other libraries (minutes; on MNIST too where $$ASSAY_DATA has it)
	$(BIN)/pytest tests/reference

bench-attacks: $(VENV)/.peers ## the attacks against those of other libraries: seconds, success, passes, bars
	$(BIN)/python benchmarks/attacks.py

# MODEL, DATA and EPS say on what, e.g. MODEL=lenet5@m.safetensors DATA='mnist/test[:1000]' EPS=0.1
bench-autoattack: $(VENV)/.peers ## suite autoattack against pyautoattack on the same weights
	$(BIN)/python benchmarks/autoattack.py $(MODEL) --data '$(DATA)' --eps $(EPS)

bench-accuracy: $(READY) ## accuracy of `assay train` on the full data sets
	$(BIN)/python benchmarks/accuracy.py

bench-coverage: $(READY) ## a pass with coverage against the bare one, and the time and memory of surprise
	$(BIN)/python benchmarks/coverage.py
	$(BIN)/python benchmarks/surprise.py

bench-scale: $(VENV)/.extras ## fuzzing, evaluation and training with one process, one worker and two, strong and weak (half an hour)
	for verb in fuzz evaluate train; do for kind in '' --weak; do $(BIN)/python benchmarks/scale.py $$verb $$kind || exit 1; done; done

bench-costs: $(READY) ## the tables of docs/explanation/scale.md: passes, bytes, rates (ten minutes; GPU=1 for those of the GPU)
	for verb in $(if $(GPU),'models --device cuda',fuzz 'evaluate --seeds 64' train growth models); do \
	  $(BIN)/python benchmarks/costs.py $$verb --into docs/explanation/scale.md || exit 1; done

bench-report: $(VENV)/.extras ## a report of 5 000 failures: seconds to write it, to open it in Chromium, to turn a page
	$(BIN)/python benchmarks/report.py

# MODEL and DATA say on what; SIBLING is another model of the same task
bench-fuzzers: $(READY) ## every baseline fuzzer for the same time, each failure checked by plain torch
	$(BIN)/python benchmarks/baselines.py $(MODEL) --data '$(DATA)' $(if $(SIBLING),--with $(SIBLING))

papers: $(READY) ## the pages of docs/papers from their rows; how to compute rows stands on each page
	$(BIN)/python benchmarks/papers/robot.py page
	$(BIN)/python benchmarks/papers/twinfuzz.py page
	$(BIN)/python benchmarks/papers/dare.py page
	$(BIN)/python benchmarks/papers/lbt.py page
	$(BIN)/python benchmarks/papers/cagfuzz.py page

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
