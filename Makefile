# Every target first creates the environment that it needs, from a plain Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin
INSTALLED_FROM = pyproject.toml constraints.txt hatch_build.py src/calibrank/_native.c
PIP = $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint docs bench clean

demo: $(VENV)/demo.stamp
	$(RUN)/calibrank demo

test: $(VENV)/dev.stamp
	$(RUN)/python -m pytest -q -n auto --dist loadgroup

lint: $(VENV)/dev.stamp
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict

bench: $(VENV)/dev.stamp
	$(RUN)/python benchmarks/core.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(VENV)/bin/python $(INSTALLED_FROM)
	$(PIP) --editable '.[cli]'
	touch $@

$(VENV)/dev.stamp: $(VENV)/bin/python $(INSTALLED_FROM)
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/demo.stamp

clean:
	rm -rf $(VENV) demo build
