# Every target first creates the environment that it needs, from a plain Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin
INSTALLED_FROM = pyproject.toml constraints.txt hatch_build.py src/calibrank/_internal/native.c $(wildcard src/calibrank/_internal/native*.h)
# Byte-compiling whole packages takes longer than unpacking them: Python compiles what is imported.
PIP = $(RUN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
WHEEL = $(RUN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --constraint constraints.txt
TEST_GROUPS = --group test --group peers --group browser --group docs
PYTEST = $(RUN)/python -m pytest -q -n auto
# Many tests start Python: without saved bytecode each would compile every module it imports again,
# for 1 to 4 seconds. Containers often set this variable.
unexport PYTHONDONTWRITEBYTECODE
FUZZ_SECONDS ?= 600
MUTANTS ?= 160

.PHONY: demo test check fast-lint fast-tests lint docs bench fuzz corpus mutation dist sbom clean

demo: $(VENV)/demo.stamp
	$(RUN)/calibrank demo

# All tests, but for those of packages that only `make $(VENV)/dev.stamp` installs (pipelines).
test: $(VENV)/test.stamp
	$(PYTEST)

# What to run before every commit: lint and types on one core, the fast half of the tests on the others.
check: $(VENV)/test.stamp $(VENV)/lint.stamp
	$(MAKE) --no-print-directory --jobs=2 fast-lint fast-tests

fast-lint:
	$(RUN)/ruff check --quiet .
	$(RUN)/ruff format --quiet --check .
	$(RUN)/mypy
	$(RUN)/lint-imports --no-logo

fast-tests:
	$(PYTEST) --fast --hypothesis-profile=fast

lint: $(VENV)/lint.stamp
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports
	$(RUN)/zizmor --offline --quiet --no-progress .github
	$(RUN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

docs: $(VENV)/test.stamp
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict

bench: $(VENV)/test.stamp
	$(RUN)/python benchmarks/core.py

fuzz: $(VENV)/test.stamp
	$(RUN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

# Bad input for every command, as real processes: about ten minutes.
corpus: $(VENV)/test.stamp
	$(RUN)/python tools/corpus.py

mutation: $(VENV)/test.stamp
	$(RUN)/python tools/mutation.py --mutants $(MUTANTS)

# The sdist, and this platform's wheel, repaired and tried in a clean environment without a compiler.
dist: $(VENV)/release.stamp
	rm -rf build/dist
	$(RUN)/python -m build --quiet --outdir build/dist .
	$(RUN)/python tools/repair_wheel.py build/dist
	$(RUN)/twine check --strict build/dist/*
	$(RUN)/python tools/check_dist.py build/dist

# What an installation with the command line consists of (CycloneDX).
sbom: $(VENV)/release.stamp
	rm -rf $(VENV)-sbom
	$(PYTHON) -m venv $(VENV)-sbom
	$(VENV)-sbom/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt '.[cli]'
	mkdir -p build
	$(RUN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	    --output-file build/sbom.cdx.json $(VENV)-sbom
	rm -rf $(VENV)-sbom

# Dependency groups need pip 25.1; the pip of an older Python is replaced, in this environment only.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$@ -m pip install --quiet --disable-pip-version-check 'pip>=25.1'

$(VENV)/demo.stamp: $(VENV)/bin/python $(INSTALLED_FROM)
	$(PIP) --editable '.[cli]'
	touch $@

# PySpark is published without a wheel, and building one takes as long as installing all the rest:
# both run at once. If it cannot be built, the last installation says why.
$(VENV)/test.stamp: $(VENV)/bin/python $(INSTALLED_FROM)
	$(PIP) 'pip>=25.1'
	$(WHEEL) --wheel-dir $(VENV)/wheels pyspark & \
	$(PIP) --editable '.[cli,onnx,sklearn,torch]' $(TEST_GROUPS); status=$$?; wait; exit $$status
	$(PIP) --find-links $(VENV)/wheels pyspark
	rm -rf $(VENV)/wheels
	touch $@ $(VENV)/demo.stamp

# The type checker looks into the packages that are imported: those of the tests.
$(VENV)/lint.stamp: $(VENV)/test.stamp
	$(PIP) --group lint
	touch $@

$(VENV)/release.stamp: $(VENV)/bin/python $(INSTALLED_FROM)
	$(PIP) 'pip>=25.1'
	$(PIP) --group release
	touch $@

# Everything: all groups of pyproject.toml.
$(VENV)/dev.stamp: $(VENV)/test.stamp
	$(PIP) --group dev
	touch $(VENV)/release.stamp $(VENV)/lint.stamp $@

clean:
	rm -rf $(VENV) $(VENV)-sbom demo build
