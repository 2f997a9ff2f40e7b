// The correctness matrix: a family of faults is one column that sums it up, or, opened, a column for each fault.

const MATRIX = DATA.matrix;
const MEANING = {
  kept: "the promise held",
  broken: "it did not, with the codes of what was found",
  limit: "it did not, in a way that is known and told",
  unknown: "the run cannot tell",
  vacuous: "nothing was tested",
};
const NO_CELL = {
  "n/a": "cannot be done to this row: it has nothing that the fault could act on",
  "-": "could be done, and no run is here",
};
const FAULTS = MATRIX.families.flatMap((family, at) => family.faults.map((fault) => ({ fault, family: at })));

function showMatrixKey() {
  put(
    "matrix-key",
    Object.entries(MEANING).map(([word, meaning]) => el("li", {}, worded(word), `: ${meaning}`)),
    Object.entries(NO_CELL).map(([word, meaning]) => el("li", {}, `${word}: ${meaning}`)),
  );
}

function showMatrix() {
  const families = MATRIX.families
    .map((family, at) => ({ ...family, at }))
    .filter((family) => chosen("families", family.name));
  const ways = DATA.ways.map((_, way) => way).filter(wanted);
  if (!ways.length || !families.length) return put("matrix", nothing("Nothing of what you chose was run."));
  const cells = new Map(MATRIX.cells.way.map((way, at) => [`${way} ${MATRIX.cells.fault[at]}`, at]));
  const sums = new Map(MATRIX.sums.way.map((way, at) => [`${way} ${MATRIX.sums.family[at]}`, at]));
  const opened = (family) => family.faults.length > 1 && state.open.has(family.name);
  const faultsOf = (family) => FAULTS.map((each, at) => ({ ...each, at })).filter((each) => each.family === family.at);
  const caption = "Rows: sink, guarantee and variant. Columns: faults by family.";
  const scrolled = $("matrix").querySelector(".box");
  const left = scrolled ? scrolled.scrollLeft : 0;
  const made = el(
    "table",
    { class: "matrix" },
    captioned(caption),
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
      ways.map((way, row) =>
        el(
          "tr",
          { class: row && DATA.ways[way][0] !== DATA.ways[ways[row - 1]][0] ? "first" : "" },
          rowHead(way),
          families.map((family) =>
            opened(family)
              ? faultsOf(family).map((each) => matrixCell(way, family, each, cells.get(`${way} ${each.at}`)))
              : familyCell(way, family, sums.get(`${way} ${family.at}`), cells, faultsOf(family)),
          ),
        ),
      ),
    ),
  );
  put("matrix", openers(families), box("Correctness matrix", made));
  const scrolling = $("matrix").querySelector(".box");
  scrolling.scrollLeft = left;
  // What the keyboard goes to is not left under the head and the first column, which stay where they are.
  const [head, first] = [made.tHead.offsetHeight, made.querySelector(".stick").offsetWidth];
  scrolling.style.scrollPadding = `${head + 8}px 8px 8px ${first + 8}px`;
  rove(made);
}

// Opens or closes all families that are shown.
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
          choose((now) => able.forEach((name) => now.open[change](name)), ["matrix"]);
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
  if (family.faults.length < 2) return el("th", { scope: "col", class: "family" }, family.name);
  return el(
    "th",
    { scope: "colgroup", colspan: span, class: "family" },
    el(
      "button",
      {
        type: "button",
        class: "open",
        "aria-expanded": String(open),
        "data-family": family.name,
        click: () => {
          choose(
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
      ` ${family.name}`,
    ),
  );
}

const summaryOf = (family) =>
  family.faults.length > 1
    ? `${family.faults.length} faults`
    : family.faults[0] === "none"
      ? "no fault"
      : breakable(family.faults[0]);

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

function rowHead(way) {
  const shows = DATA.ways[way][3];
  return el(
    "th",
    { scope: "row", class: "stick stick-0" },
    wayHead(way),
    shows ? el("span", { class: "purpose" }, `broken on purpose: ${shows}`) : null,
  );
}

// Where no run is: of a family `n/a` only if none of its faults can be done.
function noCell(way, faults) {
  const pointless = faults.every((each) => MATRIX.pointless[way].includes(each.at));
  return el("td", { class: "empty" }, pointless ? "n/a" : "-");
}

function matrixCell(way, family, fault, at) {
  if (at === undefined) return noCell(way, [fault]);
  const cells = MATRIX.cells;
  const word = DATA.words[cells.word[at]];
  const runs = cells.entries[at].length / 5;
  return cellButton(
    word,
    unwrap(cells.codes[at]),
    counted(cells.lost[at], cells.doubled[at]),
    many(runs, "run"),
    `${wayTitle(way)}, ${fault.fault === "none" ? "no fault" : fault.fault}`,
    () => showCell(way, fault.fault, at),
  );
}

function familyCell(way, family, at, cells, faults) {
  if (at === undefined) return noCell(way, faults);
  if (family.faults.length < 2) return matrixCell(way, family, faults[0], cells.get(`${way} ${faults[0].at}`));
  const sums = MATRIX.sums;
  const word = DATA.words[sums.word[at]];
  return cellButton(
    word,
    unwrap(sums.codes[at]),
    counted(sums.lost[at], sums.doubled[at]),
    `${sums.alike[at]} of ${sums.cells[at]}`,
    `${wayTitle(way)}, ${family.name}`,
    () => showFamily(way, family, cells, faults),
  );
}

function cellButton(word, codes, counts, size, title, click) {
  return el(
    "td",
    { class: `cell ${word}` },
    el(
      "button",
      {
        type: "button",
        class: "cell-button",
        tabindex: "-1",
        "aria-label": [title, word, codes, counts, size].filter(Boolean).join(", "),
        click,
      },
      worded(word, codes),
      counts ? el("span", { class: "counts" }, counts) : null,
      el("span", { class: "size" }, size),
    ),
  );
}

function showCell(way, fault, at) {
  const { entries, command: commands } = MATRIX.cells;
  const of = [];
  for (let each = 0; each < entries[at].length; each += 5) of.push(entries[at].slice(each, each + 5));
  openDialog(
    `${wayTitle(way)}: ${fault === "none" ? "no fault" : fault}`,
    el("p", {}, "Repeat it with"),
    el("p", {}, command(unwrap(commands[at]))),
    table(
      "Its runs",
      ["verdict here", "what was seen", "lost", "doubled", "seed", "report", "the whole run"],
      of.map(([run, word, told, lost, doubled]) => [
        worded(DATA.words[word]),
        unwrap(told) || "-",
        figure(lost),
        figure(doubled),
        RUNS.seed[run],
        sourceOf(run),
        command(unwrap(RUNS.command[run])),
      ]),
      { numeric: [2, 3, 4] },
    ),
    ruled([unwrap(MATRIX.cells.codes[at]), ...of.map((each) => unwrap(each[2]))]),
  );
}

function showFamily(way, family, cells, faults) {
  const rows = faults
    .map((fault) => ({ fault, at: cells.get(`${way} ${fault.at}`) }))
    .filter((each) => each.at !== undefined);
  openDialog(
    `${wayTitle(way)}: ${family.name}`,
    table(
      "Its faults",
      ["fault", "verdict", "lost", "doubled", "runs", "repeat it with"],
      rows.map(({ fault, at }) => [
        fault.fault,
        worded(DATA.words[MATRIX.cells.word[at]], unwrap(MATRIX.cells.codes[at])),
        figure(MATRIX.cells.lost[at]),
        figure(MATRIX.cells.doubled[at]),
        el(
          "button",
          {
            type: "button",
            class: "link",
            "aria-label": `${many(MATRIX.cells.entries[at].length / 5, "run")} of ${fault.fault}`,
            click: () => {
              $("dialog").close();
              showCell(way, fault.fault, at);
            },
          },
          many(MATRIX.cells.entries[at].length / 5, "run"),
        ),
        command(unwrap(MATRIX.cells.command[at])),
      ]),
      { numeric: [2, 3] },
    ),
    ruled(rows.map(({ at }) => unwrap(MATRIX.cells.codes[at]))),
  );
}

// One stop for the tab key; arrow keys, Home and End go on from there.
function rove(made) {
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
  });
}
