"""The scoreboard holds: every public number within its rounding, and none left out."""

import json
from pathlib import Path

import pytest

from calc import scoreboard as module
from calc.catalogue import preset_table
from calc.scoreboard import QUANTITIES, scoreboard

CASES = json.loads((Path(__file__).parent / "references" / "kv_public.json").read_text("utf-8"))["cases"]
ROWS = scoreboard()
COVERED = [row for row in ROWS if row.quantity is not None]
RECORDS = preset_table("public_logs")["number"]


def stated(case):
    """The numbers of a case by name; the shape of a tensor is three."""
    return {number["what"]: number["value"] for number in case["stated"]}


@pytest.mark.parametrize("row", COVERED, ids=lambda row: row.id)
def test_ours_is_the_stated_number_within_its_rounding(row):
    assert row.is_within_rounding, (row.stated, row.ours)
    assert abs(row.error) < 0.02


@pytest.mark.parametrize(
    "record", [record for record in RECORDS if "quantity" in record], ids=lambda record: record["id"]
)
def test_a_number_that_is_two_percent_and_a_digit_off_is_seen(record):
    for sign in (-1, 1):
        value = record["value"] * (1 + sign * 0.02) + sign * 2 * record["rounding"]
        assert not module._row({**record, "value": value}).is_within_rounding


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_number_of_a_case_is_covered_or_listed_with_its_reason(case):
    rows = [row for row in ROWS if row.case == case["id"]]
    assert {row.of for row in rows} == stated(case).keys()
    for row in rows:
        value = stated(case)[row.of]
        assert str(row.stated) in value if isinstance(value, str) else row.stated == value
        assert bool(row.reason) == (row.quantity is None)


def test_nothing_stands_on_the_board_that_no_case_states():
    assert {row.case for row in ROWS} == {case["id"] for case in CASES}
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_few_numbers_are_left_to_be_explained():
    assert len(COVERED) == len(ROWS) - 5


def test_every_quantity_is_used():
    assert {row.quantity for row in COVERED} == QUANTITIES.keys()
