// Recovery after faults, and the points at which random kills hit: the tables of the reports.

const RECOVERY = DATA.recovery;

function showRecovery() {
  const rows = RECOVERY.rows.filter((row) => isSelected(row.configuration) && isChosen("families", row.family));
  const families = KINDS.families.filter((family) => rows.some((row) => row.family === family));
  if (!families.length) return put("recoveries", emptyNote("No fault of your selection has a recovery."));
  const numeric = RECOVERY.headings.map((_, at) => at + 2);
  const { headings, rows: overall } = RECOVERY.overall;
  put(
    "recoveries",
    families.map((family, at) =>
      el(
        "details",
        { class: "numbers", open: at === 0 },
        el(
          "summary",
          {},
          `Faults of the family ${family}, ${many(rows.filter((row) => row.family === family).length, "row")}`,
        ),
        table(
          `Recovery, ${family}: median / maximum`,
          ["sink, guarantee, variant", "fault", ...RECOVERY.headings, "runs"],
          rows
            .filter((row) => row.family === family)
            .map((row) => [
              configurationHead(row.configuration),
              row.action,
              ...row.cells,
              runsButton(many(row.runs.length, "run"), `${fullName(row.configuration)}, ${row.action}`, row.runs),
            ]),
          { sticky: 1, numeric },
        ),
      ),
    ),
    overall.length
      ? el(
          "details",
          { class: "numbers" },
          el("summary", {}, "All faults of all families together"),
          table("All faults together: quantiles", headings, overall, { sticky: 1, numeric: [1, 2, 3] }),
        )
      : null,
  );
}

function showRandomKills() {
  const { headings, rows: all } = RECOVERY.random_kills;
  const rows = all.filter((row) => isSelected(row.configuration));
  if (!rows.length) return put("kill-points", emptyNote("Your selection has no run with random kills."));
  put(
    "kill-points",
    table(
      "Random kills by the last failpoint before them",
      ["sink, guarantee, variant", ...headings, "reports"],
      rows.map((row) => [
        configurationHead(row.configuration),
        ...row.cells,
        runsButton(many(row.runs.length, "run"), `${fullName(row.configuration)}, random kills`, row.runs),
      ]),
      { sticky: 1, numeric: headings.map((_, at) => at + 1) },
    ),
  );
}
