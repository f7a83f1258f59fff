"""Accelerators by short id, from presets/accelerators.toml, in bytes, bytes per second and FLOP per second."""

from dataclasses import dataclass

from calc.catalogue import Catalogue
from calc.names import known
from calc.units import GB, GIB, TB, TFLOP

_CATALOGUE = Catalogue("accelerators", "accelerator")

FLOP_FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
"""Formats whose peaks are listed; of int8 operations, two per multiply-add as well."""
_FORMAT_ALIASES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator as its vendor and its driver describe it; peaks, without any factor of efficiency."""

    name: str
    label: str
    memory_bytes: int | None
    """What the driver shows; where that is not known, the marketed number in decimal GB, which is never more."""
    memory_is_marketed: bool
    """Whether the memory is the marketed number, for want of the driver's."""
    bytes_per_second: int | None
    """Peak bandwidth of the memory."""
    interconnect_bytes_per_second: int | None
    """To the other accelerators of a node, one way."""
    power_watts: float | None
    usd_per_hour: float | None
    """A price that was seen, not a quotation."""
    measured_bf16_flops_per_second: int | None
    """The best bf16 matrix product that was measured, which is below the peak."""
    dense_flops_per_second: tuple[tuple[str, int], ...]
    """Format and peak of matrix products without sparsity, for the formats that are known."""
    source: str
    price_source: str
    """Empty where no price is known."""

    def flops_per_second(self, number_format: str) -> int | None:
        """The dense peak in a format; None where it is not known, LookupError where there is no such format."""
        return dict(self.dense_flops_per_second).get(
            known(number_format, FLOP_FORMATS, "format", aliases=_FORMAT_ALIASES)
        )


def accelerator_ids() -> tuple[str, ...]:
    """Ids of the accelerators, in the order they are shown.

    Returns
    -------
    tuple of str
        Short ids [names].

    Examples
    --------
    >>> accelerator_ids()[:2]
    ('a100-sxm-40', 'a100-sxm-80')
    """
    return tuple(_CATALOGUE)


def accelerator_label(name: str) -> str:
    """The label of an accelerator.

    Parameters
    ----------
    name : str
        Exact id or listed alias [name].

    Returns
    -------
    str
        What a page calls the accelerator [text].

    Raises
    ------
    LookupError
        If the name is neither an id nor a listed alias.

    Examples
    --------
    >>> accelerator_label("NVIDIA H100 80GB HBM3")
    'NVIDIA H100 SXM 80 GB'
    """
    return _CATALOGUE[name]["label"]


def accelerator(name: str) -> Accelerator:
    """The facts of an accelerator.

    Parameters
    ----------
    name : str
        Exact id or listed alias [name].

    Returns
    -------
    Accelerator
        Memory, bandwidths, peaks by format, power and a price; None where no trusted source was seen [facts].

    Raises
    ------
    LookupError
        If the name is neither an id nor a listed alias.

    Examples
    --------
    >>> h100 = accelerator("h100-sxm")
    >>> h100.bytes_per_second, h100.flops_per_second("bf16"), h100.flops_per_second("fp4")
    (3350000000000, 989000000000000, None)
    >>> accelerator("h100")
    Traceback (most recent call last):
        ...
    calc.names.UnknownName: unknown accelerator 'h100'; did you mean h200 or h100_sxm or h100-sxm?
    """
    record = _CATALOGUE[name]
    driver, marketed = _in_units(record, "driver_memory_gib", GIB), _in_units(record, "memory_gb", GB)
    return Accelerator(
        name=_CATALOGUE.id(name),
        label=record["label"],
        memory_bytes=marketed if driver is None else driver,
        memory_is_marketed=driver is None and marketed is not None,
        bytes_per_second=_in_units(record, "bandwidth_tb_per_second", TB),
        interconnect_bytes_per_second=_in_units(record, "interconnect_gb_per_second", GB),
        power_watts=record.get("power_watts"),
        usd_per_hour=record.get("usd_per_hour"),
        measured_bf16_flops_per_second=_in_units(record, "measured_bf16_tflops", TFLOP),
        dense_flops_per_second=tuple((name, round(peak * TFLOP)) for name, peak in record["dense_tflops"].items()),
        source=record["source"],
        price_source=record.get("price_source", ""),
    )


def _in_units(record: dict, key: str, unit: int) -> int | None:
    return round(record[key] * unit) if key in record else None
