"""Numbers as people read them: bytes, FLOP, dollars and tokens with their units, the same on pages and command line."""

from calc.units import EFLOP, GFLOP, GIB, KIB, MIB, PFLOP, PIB, TFLOP, TIB

_BYTES = ((PIB, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_FLOP = ((EFLOP, "EFLOP"), (PFLOP, "PFLOP"), (TFLOP, "TFLOP"), (GFLOP, "GFLOP"))


def count_text(count: float, unit: str = "") -> str:
    """A count with thousands separators: 1,685,000 tokens."""
    return f"{count:,.0f}{' ' + unit if unit else ''}"


def bytes_text(count: float) -> str:
    """Bytes in the largest binary unit that leaves at least one: 15.625 GiB."""
    return _scaled(count, _BYTES, "bytes", 5)


def flops_text(count: float) -> str:
    """FLOP in the largest decimal unit that leaves at least one: 1.4 PFLOP."""
    return _scaled(count, _FLOP, "FLOP", 4)


def usd_text(dollars: float) -> str:
    """Dollars to the cent, finer where cents would hide the number: $8.43, $0.0036."""
    size = abs(dollars)
    if size == 0 or size >= 0.9995:
        return f"${dollars:,.2f}"
    if size >= 0.1:
        return f"${dollars:.3f}".removesuffix("0")
    return f"${dollars:.3g}" if size >= 0.0001 else f"${dollars:.2e}"


def _scaled(count: float, units: tuple[tuple[int, str], ...], smallest: str, digits: int) -> str:
    size, name = next((unit for unit in units if abs(count) >= unit[0]), (1, smallest))
    scaled = count / size
    return f"{scaled:,.0f} {name}" if abs(scaled) >= 1000 else f"{scaled:.{digits}g} {name}"
