"""Tests: unit, contract, integration and proofs.

Unit tests need no JVM. Contract tests run every sink and guarantee. Integration tests use real servers and a real kill
-9.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The command `oncebench`, also where it is not installed.
COMMAND = (sys.executable, "-c", "from oncebench.cli import main; main()")
