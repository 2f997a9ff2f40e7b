// The correctness matrix: a family of faults is one summary column or, when opened, a column for each fault.

const MATRIX = DATA.matrix;
const MEANING = {
  kept: "the guarantee held",
  broken: "the guarantee failed; the codes name the anomalies",
  limit: "it failed in a known and documented case",
  unknown: "the run allows no verdict",
  vacuous: "the fault was not exercised",
};
const NO_CELL = {
  "n/a": "this fault cannot occur in this configuration",
  "not run": "it can occur, and no run has it",
};
const COUNTS = {
  "−20": "20 rows lost; at-most-once may",
  "+20": "20 rows duplicated; at-least-once may",
  "4/5": "4 of 5 faults have this outcome",
  "¹": "the number of a known limit",
};
const FAULTS = MATRIX.families.flatMap((family, at) => family.faults.map((fault) => ({ fault, family: at })));

function showMatrixKey() {
  put(
    "matrix-key",
    Object.entries(MEANING).map(([outcome, meaning]) => el("li", {}, outcomeTag(outcome), `: ${meaning}`)),
    Object.entries({ ...COUNTS, ...NO_CELL }).map(([mark, meaning]) => el("li", {}, el("b", {}, mark), `: ${meaning}`)),
  );
  put(
    "promises",
    DATA.about.promises.map((sentence) => el("li", {}, ...withLimits(sentence))),
  );
  put("protocols", DATA.about.protocols);
  put(
    "limits",
    MATRIX.limits.length
      ? [el("h3", { id: "limits-h", tabindex: "-1" }, "Known limits"), el("ol", {}, MATRIX.limits.map(limitLine))]
      : null,
  );
}

// `1 limit` and `known limits` of a sentence lead to the list of limits.
function withLimits(sentence) {
  const link = (text) =>
    MATRIX.limits.length ? el("a", { href: "#limits-h", click: (event) => goTo(event, $("limits-h")) }, text) : text;
  return sentence.split(/(\d+ limit|known limits)/).map((part, at) => (at % 2 ? link(part) : part));
}

// The configurations and faults of a known limit, its rows, and its cause.
function limitLine({ code, cause, cells }) {
  const unique = (values) => [...new Set(values)].join(", ");
  const at = (configuration, fault) =>
    MATRIX.cells.configuration.findIndex((each, cell) => each === configuration && MATRIX.cells.fault[cell] === fault);
  const sum = (name) => cells.map(([row, fault]) => MATRIX.cells[name][at(row, fault)]).reduce((a, b) => a + b, 0);
  const rows = rowCounts(code === "LOSS" ? sum("lost") : 0, code === "DUP" ? sum("duplicated") : 0);
  return el(
    "li",
    {},
    el("strong", {}, unique(cells.map(([row]) => fullName(row)))),
    ` under ${unique(cells.map(([, fault]) => FAULTS[fault].fault))}`,
    ` (${[code, rows].filter(Boolean).join(", ")}): ${cause}.`,
  );
}

// The numbers of the known limits of some cells.
const limitsOf = (configuration, faults) =>
  MATRIX.limits
    .map((limit, at) =>
      limit.cells.some(([row, fault]) => row === configuration && faults.includes(fault)) ? at + 1 : 0,
    )
    .filter(Boolean);

function showMatrix() {
  const families = MATRIX.families
    .map((family, at) => ({ ...family, at }))
    .filter((family) => isChosen("families", family.name));
  const configurations = DATA.configurations
    .map((_, number) => number)
    .filter((number) => isSelected(number) && !DATA.configurations[number].broken_on_purpose);
  if (!configurations.length || !families.length) return put("matrix", emptyNote("Your selection has no run."));
  const cells = new Map(
    MATRIX.cells.configuration.map((configuration, at) => [`${configuration} ${MATRIX.cells.fault[at]}`, at]),
  );
  const sums = new Map(
    MATRIX.sums.configuration.map((configuration, at) => [`${configuration} ${MATRIX.sums.family[at]}`, at]),
  );
  const opened = (family) => family.faults.length > 1 && state.open.has(family.name);
  const faultsOf = (family) => FAULTS.map((each, at) => ({ ...each, at })).filter((each) => each.family === family.at);
  const caption = "Rows: sink, guarantee and variant. Columns: faults by family.";
  const scrolled = $("matrix").querySelector(".box");
  const left = scrolled ? scrolled.scrollLeft : 0;
  const made = el(
    "table",
    { class: "matrix" },
    captionOf(caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col", rowspan: 2, class: "stick stick-0" }, "sink, guarantee, variant"),
        families.map((family) => familyHead(family, opened(family))),
      ),
      el(
        "tr",
        {},
        families.map((family) =>
          opened(family)
            ? faultsOf(family).map((each) => el("th", { scope: "col", class: "fault" }, breakable(each.fault)))
            : el("th", { scope: "col", class: "fault" }, summaryOf(family)),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      configurations.map((configuration, row) =>
        el(
          "tr",
          {
            class:
              row && DATA.configurations[configuration].sink !== DATA.configurations[configurations[row - 1]].sink
                ? "first"
                : "",
          },
          el("th", { scope: "row", class: "stick stick-0" }, configurationHead(configuration)),
          families.map((family) =>
            opened(family)
              ? faultsOf(family).map((each) =>
                  matrixCell(configuration, family, each, cells.get(`${configuration} ${each.at}`)),
                )
              : familyCell(configuration, family, sums.get(`${configuration} ${family.at}`), cells, faultsOf(family)),
          ),
        ),
      ),
    ),
  );
  put("matrix", openers(families), box("Correctness matrix", made));
  const scrolling = $("matrix").querySelector(".box");
  // A table that fits is not cut at its lower edge, and its head stays at the top of the window.
  scrolling.classList.toggle("fits", scrolling.scrollWidth <= scrolling.clientWidth + 1);
  scrolling.scrollLeft = left;
  // A focused cell must not end up under the table head or the first column, which do not scroll.
  const [head, first] = [made.tHead.offsetHeight, made.querySelector(".stick").offsetWidth];
  scrolling.style.scrollPadding = `${head + 8}px 8px 8px ${first + 8}px`;
  addArrowKeys(made);
}

// Buttons that open or close all displayed families.
function openers(families) {
  const able = families.filter((family) => family.faults.length > 1).map((family) => family.name);
  const opener = (id, label, change) =>
    el(
      "button",
      {
        type: "button",
        class: "chip",
        id,
        click: () => {
          updateState((now) => able.forEach((name) => now.open[change](name)), ["matrix"]);
          $(id).focus();
        },
      },
      label,
    );
  return able.length
    ? el(
        "div",
        { class: "chips" },
        opener("open-all", "Open all families", "add"),
        opener("close-all", "Close all", "delete"),
      )
    : null;
}

function familyHead(family, open) {
  const span = open ? family.faults.length : 1;
  if (family.faults.length < 2)
    return el("th", { scope: "col", class: "family", title: FAMILY_MEANING[family.name] }, familyLabel(family.name));
  return el(
    "th",
    { scope: "colgroup", colspan: span, class: "family", title: FAMILY_MEANING[family.name] },
    el(
      "button",
      {
        type: "button",
        class: "open",
        "aria-expanded": String(open),
        "data-family": family.name,
        click: () => {
          updateState(
            (now) => {
              if (!now.open.delete(family.name)) now.open.add(family.name);
            },
            ["matrix"],
          );
          const same = [...document.querySelectorAll("button.open")].find(
            (each) => each.dataset.family === family.name,
          );
          if (same) same.focus();
        },
      },
      el("span", { class: "turn", "aria-hidden": "true" }, open ? "▾" : "▸"),
      ` ${familyLabel(family.name)}`,
    ),
  );
}

const summaryOf = (family) => (family.faults[0] === "none" ? "no fault" : many(family.faults.length, "fault"));

// `after-prepare:kill-broker` on two lines.
function breakable(fault) {
  return fault.split(", ").map((each, at) => {
    const [point, ...what] = each.split(":");
    return el(
      "span",
      { class: "point" },
      at ? "then " : "",
      point,
      what.length ? el("span", { class: "what" }, what.join(":")) : null,
    );
  });
}

// A cell without a run: `n/a` if none of these faults applies to the configuration, else `not run`.
function noCell(configuration, faults) {
  const inapplicable = faults.every((each) => MATRIX.not_applicable[configuration].includes(each.at));
  return el("td", { class: "empty" }, inapplicable ? "n/a" : "not run");
}

function matrixCell(configuration, family, fault, at) {
  if (at === undefined) return noCell(configuration, [fault]);
  const cells = MATRIX.cells;
  const outcome = DATA.outcomes[cells.outcome[at]];
  const runs = cells.entries[at].length / 5;
  return cellButton(
    outcome,
    unwrap(cells.codes[at]),
    [cells.lost[at], cells.duplicated[at]],
    many(runs, "run"),
    limitsOf(configuration, [fault.at]),
    `${fullName(configuration)}, ${fault.fault === "none" ? "no fault" : fault.fault}`,
    () => showCell(configuration, fault.fault, at),
  );
}

function familyCell(configuration, family, at, cells, faults) {
  if (at === undefined) return noCell(configuration, faults);
  if (family.faults.length < 2)
    return matrixCell(configuration, family, faults[0], cells.get(`${configuration} ${faults[0].at}`));
  const sums = MATRIX.sums;
  const outcome = DATA.outcomes[sums.outcome[at]];
  return cellButton(
    outcome,
    unwrap(sums.codes[at]),
    [sums.lost[at], sums.duplicated[at]],
    `${sums.same_outcome[at]}/${sums.cells[at]}`,
    limitsOf(
      configuration,
      faults.map((fault) => fault.at),
    ),
    `${fullName(configuration)}, ${family.name}`,
    () => showFamily(configuration, family, cells, faults),
  );
}

function cellButton(outcome, codes, [lost, duplicated], size, limits, title, click) {
  const counts = [lost ? `−${figure(lost)}` : "", duplicated ? `+${figure(duplicated)}` : ""].filter(Boolean).join(" ");
  const isAll = /^(\d+)\/\1$/.test(size);
  const label = [title, outcome, codes, rowCounts(lost, duplicated), size, limits.length ? `note ${limits}` : ""];
  return el(
    "td",
    { class: `cell ${outcome}` },
    el(
      "button",
      { type: "button", class: "cell-button", tabindex: "-1", "aria-label": label.filter(Boolean).join(", "), click },
      outcomeTag(outcome, outcome === "broken" ? codes : ""),
      limits.length ? el("sup", {}, limits.join(",")) : null,
      // With rows lost or duplicated, `9/9` is left out: there is no room for both.
      el("span", { class: "size" }, counts ? el("b", { class: "counts" }, counts) : null, counts && isAll ? "" : size),
    ),
  );
}

function showCell(configuration, fault, at) {
  const { entries, command: commands } = MATRIX.cells;
  const parts = [];
  for (let each = 0; each < entries[at].length; each += 5) parts.push(entries[at].slice(each, each + 5));
  openDialog(
    `${fullName(configuration)}: ${fault === "none" ? "no fault" : fault}`,
    limitsOf(configuration, [MATRIX.cells.fault[at]]).map((number) =>
      el("p", {}, el("strong", {}, "Known limit: "), `${MATRIX.limits[number - 1].cause}.`),
    ),
    el("p", {}, "Command to repeat it"),
    el("p", {}, command(unwrap(commands[at]))),
    table(
      "Its runs",
      ["outcome", "detail", "rows lost", "rows duplicated", "seed", "report", "command of the whole run"],
      parts.map(([run, outcome, detail, lost, duplicated]) => [
        outcomeTag(DATA.outcomes[outcome]),
        unwrap(detail) || "-",
        figure(lost),
        figure(duplicated),
        RUNS.seed[run],
        reportLink(run),
        command(unwrap(RUNS.command[run])),
      ]),
      { numeric: [2, 3, 4], kind: "stacked" },
    ),
    codeRules([unwrap(MATRIX.cells.codes[at]), ...parts.map((each) => unwrap(each[2]))]),
  );
}

function showFamily(configuration, family, cells, faults) {
  const rows = faults
    .map((fault) => ({ fault, at: cells.get(`${configuration} ${fault.at}`) }))
    .filter((each) => each.at !== undefined);
  openDialog(
    `${fullName(configuration)}: ${family.name}`,
    table(
      "Its faults",
      ["fault", "outcome", "rows lost", "rows duplicated", "runs", "command to repeat it"],
      rows.map(({ fault, at }) => [
        fault.fault,
        outcomeTag(DATA.outcomes[MATRIX.cells.outcome[at]], unwrap(MATRIX.cells.codes[at])),
        figure(MATRIX.cells.lost[at]),
        figure(MATRIX.cells.duplicated[at]),
        el(
          "button",
          {
            type: "button",
            class: "link",
            "aria-label": `${many(MATRIX.cells.entries[at].length / 5, "run")} of ${fault.fault}`,
            click: () => {
              $("dialog").close();
              showCell(configuration, fault.fault, at);
            },
          },
          many(MATRIX.cells.entries[at].length / 5, "run"),
        ),
        command(unwrap(MATRIX.cells.command[at])),
      ]),
      { numeric: [2, 3], kind: "stacked" },
    ),
    codeRules(rows.map(({ at }) => unwrap(MATRIX.cells.codes[at]))),
  );
}

// The matrix is one stop for the tab key; arrow keys, Home and End move between its cells.
function addArrowKeys(made) {
  const rows = [...made.tBodies[0].rows].map((row) =>
    [...row.cells].map((cell) => cell.querySelector("button.cell-button")),
  );
  const first = rows.flat().find(Boolean);
  if (first) first.tabIndex = 0;
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  made.tBodies[0].addEventListener("keydown", (event) => {
    const y = rows.findIndex((row) => row.includes(event.target));
    if (y < 0) return;
    let x = rows[y].indexOf(event.target);
    let target = null;
    if (event.key in step) {
      const [down, right] = step[event.key];
      let at = y + down;
      for (x += right; rows[at] && x >= 0 && x < rows[at].length && !target; at += down, x += right)
        target = rows[at][x];
    } else if (event.key === "Home") target = rows[y].find(Boolean);
    else if (event.key === "End") target = rows[y].filter(Boolean).pop();
    if (!target) return;
    event.preventDefault();
    rows.flat().forEach((each) => {
      if (each) each.tabIndex = -1;
    });
    target.tabIndex = 0;
    target.focus();
    // The focus alone leaves a cell where it is if a part of it is visible beside the first column.
    target.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  });
}
