"""The folder that contains the project's packages, in a checkout or in pip's site-packages."""

from __future__ import annotations

from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
