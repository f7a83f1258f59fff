"""Accelerators against bus widths and clocks, tensor units and drivers: numbers that stand apart from the records."""

import math

import pytest

from calc.accelerators import FLOP_FORMATS, accelerator, accelerator_ids, accelerator_label
from calc.names import UnknownName
from calc.units import GIB

PARTS = [accelerator(name) for name in accelerator_ids()]

BUSES = {  # bits, transfers per second and pin: vendors' data sheets
    "a100-sxm-40": (5120, 2.43e9),
    "a100-sxm-80": (5120, 3.186e9),
    "h100-sxm": (5120, 5.23e9),
    "h200": (6144, 6.25e9),
    "b200": (7680, 2 * 3.996e9),
    "l4": (192, 12.5e9),
    "l40s": (384, 18e9),
    "a10": (384, 12.5e9),
    "t4": (256, 10e9),
    "rtx-3090": (384, 19.5e9),
    "rtx-4090": (384, 21e9),
    "rtx-5090": (512, 28e9),
    "rtx-6000-ada": (384, 20e9),
    "rtx-a6000": (384, 16e9),
    "rtx-pro-6000": (512, 28e9),
    "mi300x": (8192, 5.2e9),
}
TENSOR_UNITS = {  # cores, dense fp16 FLOP of a core in one clock, boost clock: vendors' architecture papers
    "v100-sxm-32": (80, 1024, 1.53e9),
    "t4": (40, 1024, 1.59e9),
    "a100-sxm-80": (108, 2048, 1.41e9),
    "a10": (72, 1024, 1.695e9),
    "rtx-3090": (82, 512, 1.695e9),
    "rtx-a6000": (84, 1024, 1.8e9),
    "h100-sxm": (132, 4096, 1.83e9),
    "h100-pcie": (114, 4096, 1.62e9),
    "l4": (58, 1024, 2.04e9),
    "l40s": (142, 1024, 2.49e9),
    "rtx-4090": (128, 512, 2.52e9),
    "mi300x": (304, 2048, 2.1e9),
}
DRIVER_MIB = {"l40s": 46_068, "gb200": 189_471, "b300": 275_040, "rtx-pro-6000": 97_887, "h100-sxm": 81_559,
              "a100-sxm-80": 81_920, "l4": 23_034, "t4": 15_360, "rtx-4090": 24_564}  # fmt: skip
"""What nvidia-smi shows."""


@pytest.mark.parametrize("name", BUSES)
def test_bandwidth_is_bus_width_times_transfers(name):
    bits, transfers = BUSES[name]
    assert math.isclose(accelerator(name).bytes_per_second, bits / 8 * transfers, rel_tol=0.006)


@pytest.mark.parametrize("name", TENSOR_UNITS)
def test_the_dense_peak_is_cores_times_flop_per_clock(name):
    # A sparse figure would be twice this.
    assert math.isclose(accelerator(name).flops_per_second("fp16"), math.prod(TENSOR_UNITS[name]), rel_tol=0.006)


@pytest.mark.parametrize("name", DRIVER_MIB)
def test_memory_is_what_the_driver_shows(name):
    part = accelerator(name)
    assert math.isclose(part.memory_bytes, DRIVER_MIB[name] * GIB / 1024, rel_tol=0.005)
    assert not part.memory_is_marketed


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_record_holds_together(part):
    assert accelerator_label(part.name) == part.label
    formats = dict(part.dense_flops_per_second)
    assert set(formats) <= set(FLOP_FORMATS)
    narrower = [formats[name] for name in ("tf32", "bf16", "fp8", "fp4") if name in formats]
    assert narrower == sorted(narrower)
    if part.measured_bf16_flops_per_second:
        assert part.measured_bf16_flops_per_second < formats["bf16"]
    assert bool(part.price_source) == (part.usd_per_hour is not None)


def test_the_marketed_memory_in_decimal_gb_is_never_more_than_a_driver_shows():
    # So that it is the cautious number where the driver's is not known.
    marketed = {"h100-sxm": 80, "h200": 141, "b200": 180, "b300": 288, "l40s": 48, "l4": 24, "t4": 16, "gb200": 186}
    for name, gigabytes in marketed.items():
        assert gigabytes * 10**9 <= accelerator(name).memory_bytes
    assert accelerator("mi300x").memory_bytes == 192 * 10**9
    assert accelerator("mi300x").memory_is_marketed


def test_what_is_not_known_is_none():
    assert accelerator("gb300").memory_bytes is None
    assert not accelerator("gb300").memory_is_marketed
    assert accelerator("tpu-v7").bytes_per_second is None
    assert accelerator("a100-sxm-80").flops_per_second("fp8") is None  # it has no such units
    assert accelerator("t4").flops_per_second("bf16") is None


@pytest.mark.parametrize(
    ("alias", "name"), [("NVIDIA H100 80GB HBM3", "h100-sxm"), ("H200-SXM-141GB", "h200"), ("Tesla T4", "t4"),
                        ("a100_sxm", "a100-sxm-80"), ("MI300X-192GB", "mi300x"), ("GB200 (per GPU)", "gb200")],
)  # fmt: skip
def test_the_names_of_drivers_and_data_sets_are_aliases(alias, name):
    assert accelerator(alias).name == name


@pytest.mark.parametrize("bad", ["h100", "A100", "", None, "mi300"])
def test_an_unknown_accelerator_is_refused(bad):
    with pytest.raises(UnknownName, match="^unknown accelerator"):
        accelerator(bad)


def test_an_unknown_format_is_refused():
    assert accelerator("h100-sxm").flops_per_second("bfloat16") == accelerator("h100-sxm").flops_per_second("bf16")
    with pytest.raises(UnknownName, match="^unknown format 'fp6'"):
        accelerator("h100-sxm").flops_per_second("fp6")
