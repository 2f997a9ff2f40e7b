// Every run that matches the search and the filters, AT_ONCE at a time: a table of thousands of rows is slow.

const AT_ONCE = 40;
let visibleRuns = AT_ONCE;

function showAllRuns() {
  if (!$("find")) {
    put(
      "all-runs",
      el(
        "p",
        { class: "choice" },
        el("label", { for: "find" }, "Search"),
        " ",
        el("input", {
          id: "find",
          type: "search",
          autocomplete: "off",
          placeholder: "postgres kill-broker broken seed:2",
          input: (event) => {
            visibleRuns = AT_ONCE;
            updateState(
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
  const rows = found.slice(0, visibleRuns);
  $("found").textContent =
    `${many(found.length, "run")}${rows.length < found.length ? `, the first ${figure(rows.length)} displayed` : ""}`;
  if (!rows.length) return put("runs-table", emptyNote("No run matches your search and your selection."));
  put(
    "runs-table",
    table(
      "Runs",
      [
        "sink, guarantee, variant",
        "faults, or setting",
        "verdict",
        "rows lost",
        "rows duplicated",
        "seed",
        "events/s",
        ...RUNS.headings,
        "report and command",
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
              visibleRuns += AT_ONCE * 5;
              showAllRuns();
              // The table and its button are new elements: put the focus on the first run that was added.
              $("runs-table").querySelectorAll("tbody tr")[before]?.querySelector("a, summary")?.focus();
            },
          },
          "Show more",
        )
      : null,
  );
}

function runRow(run) {
  const reasons = unwrap(RUNS.reasons[run]);
  return [
    configurationHead(RUNS.configuration[run]),
    unwrap(RUNS.test[run]),
    el(
      "span",
      {},
      outcomeTag(outcomeOfRun(run), unwrap(RUNS.codes[run])),
      reasons ? el("span", { class: "why" }, reasons) : null,
    ),
    figure(RUNS.lost[run]),
    figure(RUNS.duplicated[run]),
    RUNS.seed[run],
    figure(RUNS.events_per_s[run]),
    ...RUNS.figures.map((name, at) => figure(RUNS[name][run], RUNS.headings[at].startsWith("recovery") ? 1 : 0)),
    el("td", {}, reportAndCommand(run)),
  ];
}

// Runs that are broken on purpose are in a part of their own: they test the auditors, not a sink.
function showOnPurpose() {
  const runs = RUNS.configuration
    .map((_, run) => run)
    .filter((run) => isBrokenOnPurpose(run) && isSelected(RUNS.configuration[run]));
  if (!runs.length) return put("on-purpose", emptyNote("Your selection has no run that is broken on purpose."));
  put(
    "on-purpose",
    table(
      "Runs broken on purpose",
      ["sink, guarantee, variant", "fault", "verdict", "rows lost", "rows duplicated", "report and command"],
      runs.map((run) => [
        configurationHead(RUNS.configuration[run]),
        unwrap(RUNS.test[run]),
        outcomeTag(outcomeOfRun(run), unwrap(RUNS.codes[run])),
        figure(RUNS.lost[run]),
        figure(RUNS.duplicated[run]),
        el("td", {}, reportAndCommand(run)),
      ]),
      { sticky: 1, numeric: [3, 4], kind: "runs" },
    ),
  );
}

// Runs with a timeline lead to it.
const TIMELINES = new Set(DATA.timelines.map((each) => each.run));
function timelineButton(run) {
  const click = () => {
    updateState(
      (now) => {
        now.timeline = RUNS.id[run];
      },
      ["timelines"],
    );
    $("timeline").scrollIntoView();
    $("timeline").focus({ preventScroll: true });
  };
  const label = `timeline of ${RUNS.id[run]}`;
  return el("button", { type: "button", class: "link", "aria-label": label, click }, "timeline");
}

const reportAndCommand = (run) => [
  reportLink(run),
  TIMELINES.has(run) ? timelineButton(run) : null,
  el("details", {}, el("summary", {}, "command"), command(unwrap(RUNS.command[run]))),
];

function foundRuns() {
  const terms = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  return RUNS.configuration
    .map((_, run) => run)
    .filter((run) => {
      if (isBrokenOnPurpose(run) || !isSelected(RUNS.configuration[run])) return false;
      if (!terms.length) return true;
      const text = [
        fullName(RUNS.configuration[run]),
        unwrap(RUNS.test[run]),
        outcomeOfRun(run),
        unwrap(RUNS.codes[run]),
        unwrap(RUNS.reasons[run]),
        RUNS.id[run],
        `seed:${RUNS.seed[run]}`,
        RUNS.files[RUNS.file[run]],
        unwrap(RUNS.command[run]),
      ]
        .join(" ")
        .toLowerCase();
      return terms.every((term) => text.includes(term));
    });
}

const isBrokenOnPurpose = (run) => DATA.configurations[RUNS.configuration[run]].broken_on_purpose !== "";
