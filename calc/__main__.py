"""Runs the command line: python -m calc."""

from calc.cli import main

main()
