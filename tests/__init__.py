"""Tests: unit (no JVM), contract (every sink and guarantee), integration (real servers, real kill -9), proofs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The command `oncebench`, also where it is not installed.
COMMAND = (sys.executable, "-c", "from oncebench.cli import main; main()")
