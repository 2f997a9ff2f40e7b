// How long faults kept rows from being seen, and where random kills landed: tables, as the reports' own.

const RETURNS = DATA.returns;

function showReturns() {
  const rows = RETURNS.rows.filter((row) => wanted(row.way) && chosen("families", row.family));
  const families = KINDS.families.filter((family) => rows.some((row) => row.family === family));
  if (!families.length) return put("returns", nothing("No fault of what you chose has told of its recovery."));
  const numeric = RETURNS.headings.map((_, at) => at + 2);
  const { headings, rows: overall } = RETURNS.overall;
  put(
    "returns",
    overall.length
      ? table("All faults together: quantiles of each mark", headings, overall, { sticky: 1, numeric: [1, 2, 3] })
      : null,
    families.map((family) =>
      el(
        "details",
        { class: "numbers", open: families.length === 1 },
        el("summary", {}, `After faults of the family ${family}`),
        table(
          `Recovery, ${family}: median / maximum`,
          ["sink, guarantee, variant", "nemesis", ...RETURNS.headings, "runs"],
          rows
            .filter((row) => row.family === family)
            .map((row) => [
              wayHead(row.way),
              row.nemesis,
              ...row.cells,
              toRuns(many(row.runs.length, "run"), `${wayTitle(row.way)}, ${row.nemesis}`, row.runs),
            ]),
          { sticky: 1, numeric },
        ),
      ),
    ),
  );
}

function showLanded() {
  const { headings, rows: all } = RETURNS.landings;
  const rows = all.filter((row) => wanted(row.way));
  if (!rows.length) return put("landed", nothing("Nothing of what you chose was killed at random."));
  put(
    "landed",
    table(
      "Random kills by the failpoint passed last",
      ["sink, guarantee, variant", ...headings, "reports"],
      rows.map((row) => [
        wayHead(row.way),
        ...row.cells,
        toRuns(many(row.runs.length, "run"), `${wayTitle(row.way)}, random kills`, row.runs),
      ]),
      { sticky: 1, numeric: headings.map((_, at) => at + 1) },
    ),
  );
}
