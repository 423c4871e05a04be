# Two main commands: make run (sets everything up and runs a profile) and make test.
PYTHON ?= python3
VENV ?= .venv
PROFILE ?= PERF-CPU-MLPERF.yaml
ARGS ?=
INSTALLER ?= $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test check lab mutants other-pythons schemas man reference docs clean
run: $(VENV)/installed
	$(VENV)/bin/vcagent --profile $(PROFILE) $(ARGS)

test: $(VENV)/installed-test
	$(VENV)/bin/python -m pytest $(ARGS)

# All of the labs, also what takes minutes: real NVIDIA packages of Debian, built by DKMS; telemetry's servers.
# As root.
lab: $(VENV)/installed-dev
	$(INSTALLER) --editable '.[dev,lab]'
	VCAGENT_LAB=all VCAGENT_TEST_LAB=required $(VENV)/bin/python -m pytest tests/lab $(ARGS)

check: $(VENV)/installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python -m tests.plain_words parsers gpu_configs profiles agent/core agent/store agent/profile agent/facts agent/host agent/diagnosis agent/component agent/planning agent/query agent/doctor agent/cli agent/run agent/report agent/comparison agent/sinks agent/fleet actions benchmarks dependencies tests docs README.md CHANGELOG.md

# Changes lines one by one and checks that a test fails; takes hours, and is not part of CI.
mutants: $(VENV)/installed-dev
	$(INSTALLER) 'mutmut>=3.8,<4'
	$(VENV)/bin/mutmut run $(ARGS)
	$(VENV)/bin/mutmut results

# Chooses the costly tests that CI leaves out with further Pythons; to be called when tests became slower.
other-pythons: $(VENV)/installed-test
	$(INSTALLER) 'coverage>=7.10,<8'
	$(VENV)/bin/python -m tests.other_pythons

# Builds the documentation into site/ and fails if a link or an anchor is broken.
docs: $(VENV)/installed-dev
	$(INSTALLER) 'mkdocs-material>=9.5,<10'
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --site-dir site

# Writes the pages of docs/reference from the code.
reference: $(VENV)/installed-test
	$(VENV)/bin/python docs/generate.py

schemas: $(VENV)/installed
	$(VENV)/bin/python -c 'import pathlib, agent.store.command_documents as c, agent.store.documents as d; [pathlib.Path("docs/schemas", n).write_text(t) for n, t in (d.schemas() | c.schemas_of()).items()]'

man: $(VENV)/installed
	$(VENV)/bin/python -m agent.cli.man_page > docs/vcagent.1

clean:
	rm -rf $(VENV) build *.egg-info

# Each stamp includes the extras of the ones before it.
$(VENV)/installed-test: extras = [test]
$(VENV)/installed-test: also = $(VENV)/installed
$(VENV)/installed-dev: extras = [dev]
$(VENV)/installed-dev: also = $(VENV)/installed $(VENV)/installed-test
$(VENV)/installed $(VENV)/installed-test $(VENV)/installed-dev: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "vcagent needs Python 3.10 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1): install a newer one beside it (RHEL 8 and 9: dnf install python3.12; SLES 15: zypper install python311; Ubuntu 20.04 and Debian 11: python3 -m pip install --user uv, then ~/.local/bin/uv python install 3.12), then make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) makes no virtual environments: apt-get install python3-venv, or make PYTHON=/path/to/python3" >&2; exit 1; }
	@test ! -e $(VENV) || test -e $(VENV)/pyvenv.cfg || { \
	  echo "$(VENV) exists but is not a virtual environment: move it away, or make VENV=another" >&2; exit 1; }
	@# An unfinished venv has no pip yet: create it again.
	$(VENV)/bin/python -I -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing vcagent into $(VENV); this takes a minute or two."
	$(INSTALLER) --editable '.$(extras)'
	@touch $@ $(also)
