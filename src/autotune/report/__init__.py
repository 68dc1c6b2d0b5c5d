"""From results and records to tables of text: data only, drawn elsewhere."""

from __future__ import annotations

from autotune.report.confirmation import (
    baseline_phrase,
    comparison_text,
    confirmation_lines,
    contest_text,
    short_digest,
)
from autotune.report.holdings import Holding, holdings_table, summarize
from autotune.report.readings import reading_lines
from autotune.report.spread import Spread, spread_table, spreads
from autotune.report.steps import step_lines
from autotune.report.table import Table
from autotune.report.tables import (
    Finding,
    builders_table,
    comparison_table,
    findings_table,
    fleet_table,
    plugins_table,
    records_table,
    share_text,
    time_line,
)
from autotune.report.warm_start import warm_start_text

__all__ = [
    "baseline_phrase",
    "Finding",
    "Holding",
    "Spread",
    "Table",
    "builders_table",
    "comparison_table",
    "comparison_text",
    "confirmation_lines",
    "contest_text",
    "findings_table",
    "holdings_table",
    "fleet_table",
    "plugins_table",
    "reading_lines",
    "records_table",
    "share_text",
    "short_digest",
    "spread_table",
    "spreads",
    "step_lines",
    "summarize",
    "time_line",
    "warm_start_text",
]
