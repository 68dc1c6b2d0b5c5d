"""Configuration of Sphinx; see CONTRIBUTING.md for how the documentation is built."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))


def _release() -> str:
    try:
        return metadata.version("tensor-autotune")
    except metadata.PackageNotFoundError:  # built from a source tree
        text = (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")
        found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
        return found[1] if found else "unknown"


project = "autotune"
author = "the autotune developers"
copyright = "the autotune developers; Apache-2.0"
release = version = _release()

extensions = [
    "autotune_reference",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "examples"]
nitpicky = False

html_theme = "furo"
html_title = f"autotune {release}"
html_static_path = ["_static"]
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"EventListener": "EventListener"}
# Attributes are described in the docstring of their class, once.
napoleon_use_ivar = True
napoleon_numpy_docstring = False
