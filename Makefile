# make run    sets everything up and opens the page on this machine only
# make test   sets everything up and runs all the tests
# make bench  times what is timed
# make fuzz   reads 100,000 mutated configs, several minutes
PYTHON ?= python3
VENV ?= .venv

run: $(VENV)/.run
	$(VENV)/bin/streamlit run app.py

test: $(VENV)/.test chromium
	$(VENV)/bin/python -m pytest -q

bench: $(VENV)/.run
	$(VENV)/bin/python -m benchmarks.sweep
	$(VENV)/bin/python -m benchmarks.read_config

fuzz: $(VENV)/.test
	CONFIG_MUTATIONS=100000 $(VENV)/bin/python -m pytest -q tests/test_config_mutations.py

$(VENV)/.run: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.test: requirements.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@ $(VENV)/.run

# The browser tests drive the system's Chromium: installed here where that is allowed, asked for where it is not.
chromium:
	@command -v chromium chromium-browser google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	     && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	|| { echo "The browser tests need Chromium. Install it (Debian: sudo apt-get install chromium), then run make test again." >&2; exit 1; }

.PHONY: run test bench fuzz chromium
