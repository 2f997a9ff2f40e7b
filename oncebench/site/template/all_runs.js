// Every run, found by words and by what is chosen above; so many at a time, since a page of thousands is slow.

const AT_ONCE = 40;
let shownRuns = AT_ONCE;

function showAllRuns() {
  if (!$("find")) {
    put(
      "all-runs",
      el(
        "p",
        { class: "choice" },
        el("label", { for: "find" }, "Find"),
        " ",
        el("input", {
          id: "find",
          type: "search",
          autocomplete: "off",
          placeholder: "postgres kill-broker broken seed:2",
          input: (event) => {
            shownRuns = AT_ONCE;
            choose(
              (now) => {
                now.find = event.target.value;
              },
              ["runs"],
            );
          },
        }),
      ),
      el("p", { id: "found", role: "status" }),
      el("div", { id: "runs-table" }),
    );
  }
  if ($("find").value !== state.find) $("find").value = state.find;
  const found = foundRuns();
  const rows = found.slice(0, shownRuns);
  $("found").textContent =
    `${many(found.length, "run")}${rows.length < found.length ? `, the first ${figure(rows.length)} shown` : ""}`;
  put(
    "runs-table",
    table(
      "Runs",
      [
        "sink, guarantee, variant",
        "faults",
        "verdict",
        "lost",
        "doubled",
        "seed",
        "events/s",
        ...RUNS.headings,
        "report",
        "repeat it with",
      ],
      rows.map(runRow),
      { sticky: 1, numeric: [3, 4, 5, 6, 7, 8, 9, 10], kind: "runs" },
    ),
    rows.length < found.length
      ? el(
          "button",
          {
            type: "button",
            class: "chip",
            click: () => {
              const before = rows.length;
              shownRuns += AT_ONCE * 5;
              showAllRuns();
              // The button that had the focus is another now, or gone: go on at the first run that was not shown.
              $("runs-table").querySelectorAll("tbody tr")[before]?.querySelector("a, summary")?.focus();
            },
          },
          "Show more",
        )
      : null,
  );
}

function runRow(run) {
  const why = unwrap(RUNS.why[run]);
  return [
    wayHead(RUNS.way[run]),
    unwrap(RUNS.done[run]),
    el("span", {}, worded(verdictOf(run), unwrap(RUNS.codes[run])), why ? el("span", { class: "why" }, why) : null),
    figure(RUNS.lost[run]),
    figure(RUNS.doubled[run]),
    RUNS.seed[run],
    figure(RUNS.per_s[run]),
    ...RUNS.figures.map((name, at) => figure(RUNS[name][run], RUNS.headings[at].startsWith("recovery") ? 1 : 0)),
    sourceOf(run),
    el("details", {}, el("summary", {}, "command"), command(unwrap(RUNS.command[run]))),
  ];
}

function foundRuns() {
  const asked = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  return RUNS.way
    .map((_, run) => run)
    .filter((run) => {
      if (!wanted(RUNS.way[run])) return false;
      if (!asked.length) return true;
      const text = [
        wayTitle(RUNS.way[run]),
        unwrap(RUNS.done[run]),
        verdictOf(run),
        unwrap(RUNS.codes[run]),
        unwrap(RUNS.why[run]),
        RUNS.id[run],
        `seed:${RUNS.seed[run]}`,
        RUNS.files[RUNS.file[run]],
        unwrap(RUNS.command[run]),
      ]
        .join(" ")
        .toLowerCase();
      return asked.every((word) => text.includes(word));
    });
}
