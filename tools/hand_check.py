"""Computes the main figures of one run by hand, from its raw record.

    python tools/hand_check.py RUN_FOLDER

Takes a second or two. It uses pandas and pyarrow, and nothing of oncebench. Prints expected, lost and duplicated rows
and the p99 latency. The run's `report.json` has the same figures under `rows` and `latency_ms`.
"""

import json
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa

run = Path(sys.argv[1])
read = {name: pa.ipc.open_stream(run / f"{name}.arrow").read_pandas() for name in ("input", "final", "observed")}
events = pd.DataFrame(read["input"]["value"].map(json.loads).tolist())
rows = pd.DataFrame(read["final"]["value"].map(json.loads).tolist())
observed = pd.DataFrame(read["observed"]["value"].map(json.loads).tolist()).assign(seen_us=read["observed"]["seen_us"])

ended = (
    events.groupby("session_key")["seq"].nunique().loc[lambda seqs: seqs == 100].index
)  # 20 rows are expected of each
expected = pd.MultiIndex.from_product([ended, range(20)])
visible = pd.MultiIndex.from_frame(rows[["session_key", "j"]])
lost, duplicated = len(expected.difference(visible)), len(visible) - visible.nunique()

started_us = json.loads((run / "ledger" / "plan.json").read_text())["started_us"]
warmup_s = json.loads((run / "cell.json").read_text())["cell"]["warmup_s"]
first = observed.groupby(["session_key", "j"])[["ended_at", "seen_us"]].min()
first = first[first["ended_at"] >= started_us + warmup_s * 1e6]
latency_ms = ((first["seen_us"] - first["ended_at"]) / 1000).sort_values()
due = pd.concat([rows, observed]).query("ended_at >= @started_us + @warmup_s * 1e6")
n = due.groupby(["session_key", "j"]).ngroups  # a row that was never seen is later than every other
p99 = latency_ms.iloc[-(-99 * n // 100) - 1]  # the smallest value that 99 % of the rows do not exceed
print(f"expected {len(expected)}  lost {lost}  duplicated {duplicated}  p99 {p99:.3f} ms of {len(latency_ms)} rows")
