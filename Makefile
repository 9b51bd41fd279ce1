# Every target first creates the environment that it needs, from a plain Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin
INSTALLED_FROM = pyproject.toml constraints.txt hatch_build.py src/calibrank/_native.c src/calibrank/_native_maps.h
PIP = $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
FUZZ_SECONDS ?= 600
MUTANTS ?= 160

.PHONY: demo test check lint docs bench fuzz mutation dist sbom clean

demo: $(VENV)/demo.stamp
	$(RUN)/calibrank demo

test: $(VENV)/dev.stamp
	$(RUN)/python -m pytest -q -n auto --dist loadgroup

# What to run before every commit: lint, types and the fast half of the tests.
check: lint
	$(RUN)/python -m pytest -q -n auto --dist loadgroup --fast --hypothesis-profile=fast

lint: $(VENV)/dev.stamp
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports
	$(RUN)/zizmor --offline --quiet --no-progress .github
	$(RUN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict

bench: $(VENV)/dev.stamp
	$(RUN)/python benchmarks/core.py

fuzz: $(VENV)/dev.stamp
	$(RUN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

mutation: $(VENV)/dev.stamp
	$(RUN)/python tools/mutation.py --mutants $(MUTANTS)

# The sdist, and this platform's wheel, repaired and tried in a clean environment without a compiler.
dist: $(VENV)/dev.stamp
	rm -rf build/dist
	$(RUN)/python -m build --quiet --outdir build/dist .
	$(RUN)/python tools/repair_wheel.py build/dist
	$(RUN)/twine check --strict build/dist/*
	$(RUN)/python tools/check_dist.py build/dist

# What an installation with the command line consists of (CycloneDX).
sbom: $(VENV)/dev.stamp
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

$(VENV)/dev.stamp: $(VENV)/bin/python $(INSTALLED_FROM)
	$(PIP) 'pip>=25.1'
	$(PIP) --editable '.[all]' --group dev
	touch $@ $(VENV)/demo.stamp

clean:
	rm -rf $(VENV) $(VENV)-sbom demo build
