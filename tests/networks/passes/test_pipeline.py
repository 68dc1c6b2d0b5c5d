from __future__ import annotations

import re
from pathlib import Path

from autotune.networks.passes import graph_passes


def test_the_documentation_lists_the_passes() -> None:
    page = Path(__file__).parents[3] / "docs" / "networks.md"
    text = page.read_text().split("## The graph before it is cut")[1].split("\n## ")[0]
    table = text.split("| pass | what it does |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(graph_passes())
