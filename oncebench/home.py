"""The folder that holds the project's packages, in a checkout or where pip installed them."""

from __future__ import annotations

from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
