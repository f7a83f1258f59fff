"""Numbers as people read them: bytes, FLOP, dollars and tokens with their units, the same on pages and command line."""

from calc.units import BILLION, EFLOP, GFLOP, GIB, KIB, MFLOP, MIB, MILLION, PFLOP, PIB, TFLOP, TIB, TRILLION

_BYTES = ((PIB, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_FLOP = ((EFLOP, "EFLOP"), (PFLOP, "PFLOP"), (TFLOP, "TFLOP"), (GFLOP, "GFLOP"), (MFLOP, "MFLOP"))

_LARGE = ((TRILLION, "trillion"), (BILLION, "billion"), (MILLION, "million"))


def count_text(count: float, unit: str = "") -> str:
    """A count with thousands separators and its unit, given in the plural: 1,685,000 tokens, 1 token."""
    number = f"{count:,}" if isinstance(count, int) else f"{count:,.0f}"
    return f"{number} {unit.removesuffix('s') if count == 1 else unit}".rstrip()


def bytes_text(count: float) -> str:
    """Bytes in the largest binary unit that leaves at least one: 15.625 GiB."""
    return _scaled(count, _BYTES, "bytes", 5)


def flops_text(count: float) -> str:
    """FLOP in the largest decimal unit that leaves at least one: 1.4 PFLOP."""
    return _scaled(count, _FLOP, "FLOP", 4)


def usd_text(dollars: float) -> str:
    """Dollars to the cent, finer where cents would hide the number: $8.43, $0.0036."""
    if dollars < 0:
        return f"-{usd_text(-dollars)}"
    for size, name in _LARGE:
        if dollars >= 10 * size:
            return f"${dollars / size:,.4g} {name}" if dollars < 1000 * size else f"${dollars / size:,.0f} {name}"
    if dollars == 0 or dollars >= 0.9995:
        return f"${dollars:,.2f}"
    if dollars >= 0.1:
        return f"${dollars:.3f}".removesuffix("0")
    return f"${dollars:.3g}" if dollars >= 0.0001 else f"${dollars:.2e}"


def _scaled(count: float, units: tuple[tuple[int, str], ...], smallest: str, digits: int) -> str:
    size, name = next((unit for unit in units if abs(count) >= unit[0]), (1, smallest))
    scaled = count / size
    if scaled == 1:
        name = name.removesuffix("s")
    return f"{scaled:,.0f} {name}" if abs(scaled) >= 1000 else f"{scaled:.{digits}g} {name}"
