"""The state file of a run: an append-only list of records, one JSON object a line.

A record counts from the moment its line has ended. So a crash at any point leaves all records
before it and at most one torn line, which is cut off when the run goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class JournalError(Exception):
    """The file is damaged, or another process writes to it."""


class Journal:
    """The open state file; nobody else can open it meanwhile. For one thread."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it. Raises JournalError, OSError."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self.records = self._recover()
        except BaseException:
            os.close(self._file)
            raise

    def _recover(self) -> list[Record]:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"{self.path}: another courier works on this run") from None
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        records = list(_parse(self.path, whole))
        if len(whole) < len(content):
            os.ftruncate(self._file, len(whole))
        _sync_folder(self.path.parent)
        return records

    def append(self, record: Record, durable: bool = False) -> None:
        """Adds a record; with `durable` it has outlived a power cut when this returns.

        Raises OSError, and has then added nothing.
        """
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        end = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(f"{self.path}: only {written} of {len(line)} bytes could be written")
            if durable:
                os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, end)
            raise
        self.records.append(record)

    def clear(self) -> None:
        """Forgets everything."""
        os.ftruncate(self._file, 0)
        self.records.clear()

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> list[Record]:
    """The records of a run that may be under way. Raises JournalError, OSError."""
    content = path.read_bytes()
    return list(_parse(path, content[: content.rfind(b"\n") + 1]))


def _parse(path: Path, content: bytes) -> Iterator[Record]:
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise JournalError(f"{path}: line {number} is damaged: {error}") from None
        yield record


def _sync_folder(folder: Path) -> None:
    """A new file's name outlives a power cut too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
