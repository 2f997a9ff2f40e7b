// Recovery after faults, and the points at which random kills hit: the tables of the reports.

const RECOVERY = DATA.recovery;

// Runs of different machines never share a table. The machine is named where there are several.
const onMachine = (machine) =>
  RECOVERY.machines.length > 1 ? `, on ${RECOVERY.machines[machine] || "an unknown machine"}` : "";

function showRecovery() {
  const chosen = (row) => isSelected(row.configuration) && isChosen("families", row.family);
  const byMachine = RECOVERY.rows.map((rows) => rows.filter(chosen));
  const families = KINDS.families.filter((family) => byMachine.flat().some((row) => row.family === family));
  if (!families.length) return put("recoveries", emptyNote("No fault of your selection has a recovery."));
  const { headings, rows: overall } = RECOVERY.overall;
  put(
    "recoveries",
    families.map((family, at) => {
      const ofFamily = byMachine.map((rows) => rows.filter((row) => row.family === family));
      return el(
        "details",
        { class: "numbers", open: at === 0 },
        el("summary", {}, `Faults of the family ${family}, ${many(ofFamily.flat().length, "row")}`),
        ofFamily.map((rows, machine) => (rows.length ? recoveryTable(family, machine, rows) : null)),
      );
    }),
    overall.length
      ? el(
          "details",
          { class: "numbers" },
          el("summary", {}, "All faults of all families together"),
          overall.map((found, machine) =>
            table(`All faults together${onMachine(machine)}: quantiles`, headings, found, {
              sticky: 1,
              numeric: [1, 2, 3],
            }),
          ),
        )
      : null,
  );
}

function recoveryTable(family, machine, rows) {
  return table(
    `Recovery, ${family}${onMachine(machine)}: median / maximum`,
    ["sink, guarantee, variant", "fault", ...RECOVERY.headings, "runs"],
    rows.map((row) => [
      configurationHead(row.configuration),
      row.action,
      ...row.cells,
      runsButton(
        many(row.runs.length, "run"),
        `${fullName(row.configuration)}, ${row.action}${onMachine(machine)}`,
        row.runs,
      ),
    ]),
    { sticky: 1, numeric: RECOVERY.headings.map((_, at) => at + 2) },
  );
}

function showRandomKills() {
  const { headings, points, rows: all } = RECOVERY.random_kills;
  const rows = all.filter((row) => isSelected(row.configuration));
  if (!rows.length) return put("kill-points", emptyNote("Your selection has no run with random kills."));
  put(
    "kill-points",
    table(
      "Random kills by the last failpoint before them",
      ["sink, guarantee, variant", ...headings, "reports", ...points],
      rows.map((row) => [
        configurationHead(row.configuration),
        ...row.cells,
        runsButton(many(row.runs.length, "run"), `${fullName(row.configuration)}, random kills`, row.runs),
        ...row.points,
      ]),
      { sticky: 1, numeric: [...headings, "", ...points].map((_, at) => at + 1) },
    ),
  );
}
