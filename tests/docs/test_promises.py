"""The table of promises is what the tests say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_up_to_date() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "promises.py"), "--check"]
    assert subprocess.run(script, timeout=300).returncode == 0, "run scripts/promises.py"
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert page.count("| `tests/") >= 12
