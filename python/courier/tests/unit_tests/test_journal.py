from __future__ import annotations

import os
from pathlib import Path

import pytest

from courier.journal import Journal, JournalError, Record, read

RECORDS: list[Record] = [{"kind": "run", "n": 1}, {"kind": "step", "text": "ünï\n"}, {"n": 3}]


def write(path: Path) -> bytes:
    journal = Journal(path)
    for record in RECORDS:
        journal.append(record, durable=True)
    journal.close()
    return path.read_bytes()


def test_records_come_back(state: Path) -> None:
    write(state)
    assert read(state) == RECORDS
    journal = Journal(state)
    assert journal.records == RECORDS
    journal.close()


def test_a_crash_at_any_byte_costs_at_most_the_record_under_way(state: Path) -> None:
    whole = write(state)
    for n in range(len(whole) + 1):
        state.write_bytes(whole[:n])
        n_whole = whole[:n].count(b"\n")
        assert read(state) == RECORDS[:n_whole]
        journal = Journal(state)
        assert journal.records == RECORDS[:n_whole]
        journal.append({"after": n})
        journal.close()
        assert read(state) == [*RECORDS[:n_whole], {"after": n}]


def test_damage_before_the_end_is_said(state: Path) -> None:
    whole = write(state)
    state.write_bytes(whole.replace(b'"n":1', b'"n":'))
    with pytest.raises(JournalError, match="line 1 is damaged"):
        Journal(state)
    state.write_bytes(b"[1]\n")
    with pytest.raises(JournalError, match="not an object"):
        read(state)


def test_one_courier_at_a_time(state: Path) -> None:
    journal = Journal(state)
    with pytest.raises(JournalError, match="another courier"):
        Journal(state)
    journal.close()
    Journal(state).close()


def test_a_record_that_could_not_be_written_whole_is_not_there(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(state)
    journal = Journal(state)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real_write(file, data[:5]))
    with pytest.raises(OSError, match="only 5 of"):
        journal.append({"n": 4})
    monkeypatch.undo()
    journal.append({"n": 5})
    journal.close()
    assert read(state) == [*RECORDS, {"n": 5}]
    assert journal.records == [*RECORDS, {"n": 5}]


def test_a_run_that_starts_over_forgets(state: Path) -> None:
    write(state)
    journal = Journal(state)
    journal.clear()
    journal.append({"n": 9})
    journal.close()
    assert read(state) == [{"n": 9}]
