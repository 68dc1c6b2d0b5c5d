"""From results and records to tables of text: data only, drawn elsewhere."""

from __future__ import annotations

from autotune.report.lines import (
    baseline_phrase,
    comparison_text,
    confirmation_lines,
    contest_text,
    reading_lines,
    short_digest,
    step_lines,
    warm_start_text,
)
from autotune.report.summaries import (
    holdings_table,
    spread_table,
    spreads,
    summarize,
)
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

__all__ = [
    "baseline_phrase",
    "Finding",
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
