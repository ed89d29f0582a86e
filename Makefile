# Every target sets up what it needs by itself; a second run skips the set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
USABLE := $(VENV)/.usable
DEMO   := demo
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: help demo test slow lint format bench constraints clean

help:
	@echo "make demo    build a city, simulate a day of trips, thin them, write and draw them (into $(DEMO)/)"
	@echo "make test    run the test suite"
	@echo "make lint    ruff, mypy --strict, import-linter"
	@echo "make slow    run the slow tests too"
	@echo "make bench   measure speed (benchmarks/); needs the real data"
	@echo "make format  format the code"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tedtrajrec needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[interop,serve,cluster,dev]'
	@touch $@

# What users need, without the tools of developers: a minute less to set up. Nothing to do where those are there too.
$(USABLE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tedtrajrec needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(READY) || $(BIN)/python -m pip install --quiet --no-compile --editable '.[serve]'
	@touch $@

demo: $(USABLE)
	@$(BIN)/python -m tedtrajrec demo -o $(DEMO)

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

slow: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

constraints: $(READY)
	( sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//' ) > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) $(DEMO)
