"""Runs the command line: python -m calc."""

import sys

try:
    from calc.cli import main
except ModuleNotFoundError as missing:
    print(f"error: {missing.name} is not installed; set up with make run, then use .venv/bin/python", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    main()
