"""Catalogues: ids and aliases lead to the file's own records, and nothing else does."""

import pytest

from calc.catalogue import Catalogue, preset_table
from calc.names import UnknownName

TABLES = ["models", "accelerators", "kv_formats"]
tables = pytest.mark.parametrize("table", TABLES)


@tables
def test_ids_and_aliases_lead_to_the_records_of_the_file(table):
    catalogue, records = Catalogue(table, "thing"), preset_table(table)
    assert list(catalogue) == list(records)
    for name, record in records.items():
        for known in (name, *record["aliases"]):
            assert catalogue.id(known) == name
            assert catalogue[known] == record


@tables
def test_a_name_stands_for_one_record(table):
    names = [name for id_, record in preset_table(table).items() for name in (id_, *record["aliases"])]
    assert len(names) == len(set(names))


@tables
@pytest.mark.parametrize("name", ["", "no-such-thing", 7, None])
def test_another_name_is_refused_by_what_it_should_be(table, name):
    with pytest.raises(UnknownName, match="unknown thing"):
        Catalogue(table, "thing")[name]
