"""Tests: unit (no JVM), contract (every sink and guarantee), integration (real servers, real kill -9), proofs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
