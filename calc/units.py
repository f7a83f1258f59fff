"""The only place where powers of 1000 and 1024 are written."""

KB = 1000
MB = 1000**2
GB = 1000**3
TB = 1000**4
PB = 1000**5

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4
PIB = 1024**5

MTOK = 1000**2
"""Tokens in the unit that providers price by."""

MFLOP = 1000**2
GFLOP = 1000**3
TFLOP = 1000**4
PFLOP = 1000**5
EFLOP = 1000**6

MILLION = 1000**2
BILLION = 1000**3
TRILLION = 1000**4

MINUTE = 60
HOUR = 60 * MINUTE
