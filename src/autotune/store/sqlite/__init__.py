"""Durable records and runs."""

from __future__ import annotations

from autotune.store.database import Database, RecordFilter
from autotune.store.sqlite.sqlite_database import SQLiteDatabase, open_database

__all__ = ["Database", "RecordFilter", "SQLiteDatabase", "open_database"]
