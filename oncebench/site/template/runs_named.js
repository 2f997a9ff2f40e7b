// Where a figure comes from: its runs, each with its file and line, its seed, and the command that repeats it.

const SYMBOLS = { kept: "✓", broken: "✗", limit: "◐", unknown: "?", vacuous: "○" };
const RUNS = DATA.runs;

const wayName = (way) => `${DATA.ways[way][1]} ${DATA.ways[way][2]}`;
const wayTitle = (way) => `${DATA.ways[way][0]} ${wayName(way)}`;
// Sink, guarantee and variant in one cell, which stays in sight while a table is scrolled.
function wayHead(way) {
  const [sink, guarantee, variant] = DATA.ways[way];
  return el(
    "span",
    { class: "way" },
    el("strong", {}, sink),
    el("span", { class: `tag ${guarantee}` }, guarantee),
    el("span", {}, variant),
  );
}
const verdictOf = (run) => RUNS.verdicts[RUNS.verdict[run]];

// `✓ kept`: a symbol, hidden from screen readers, and the word.
function worded(word, codes = "") {
  return el(
    "span",
    { class: `word ${word}` },
    el("span", { class: "whole" }, el("span", { class: "symbol", "aria-hidden": "true" }, SYMBOLS[word]), ` ${word}`),
    codes ? ` ${codes}` : null,
  );
}

function counted(lost, doubled) {
  return [lost ? `${figure(lost)} lost` : "", doubled ? `${figure(doubled)} doubled` : ""].filter(Boolean).join(", ");
}

function sourceOf(run) {
  const file = RUNS.files[RUNS.file[run]];
  return el("a", { href: `runs/${encodeURIComponent(file)}`, class: "source" }, `${file} line ${RUNS.line[run]}`);
}

// Each code that some texts name: what it means and its exact rule; then what the words of these rules stand for.
function ruled(texts) {
  const named = new Set(texts.join(" ").split(/[^\w-]+/));
  const found = Object.entries(DATA.codes).filter(([code]) => named.has(code));
  const terms = new Set(found.flatMap(([, code]) => code.terms));
  const said = [
    ...found.map(([code, { means, rule }]) => [code, `${means}: ${rule}`]),
    ...Object.entries(DATA.terms).filter(([term]) => terms.has(term)),
  ];
  const lines = said.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)));
  const heading = el("p", {}, "What the codes mean, and the rules by which they are counted");
  return lines.length ? [heading, el("dl", { class: "facts" }, lines)] : [];
}

// A command breaks between its options only, as long as there is room for one.
const command = (text) =>
  el(
    "code",
    { class: "command" },
    text.split(" --").map((part, at) => [at ? " " : null, el("span", { class: "option" }, at ? `--${part}` : part)]),
  );

// A button that leads from a figure to its runs.
function toRuns(label, title, runs) {
  return el(
    "button",
    { type: "button", class: "link", "aria-label": `${label}: ${title}`, click: () => showRuns(title, runs) },
    label,
  );
}

function showRuns(title, runs, before = []) {
  openDialog(
    title,
    before,
    table(
      `Runs of: ${title}`,
      ["verdict", "seed", "lost", "doubled", "report", "repeat it with"],
      runs.map((run) => [
        worded(verdictOf(run), unwrap(RUNS.codes[run])),
        RUNS.seed[run],
        figure(RUNS.lost[run]),
        figure(RUNS.doubled[run]),
        sourceOf(run),
        command(unwrap(RUNS.command[run])),
      ]),
      { numeric: [1, 2, 3] },
    ),
    ruled(runs.map((run) => unwrap(RUNS.codes[run]))),
  );
}

// The browser keeps the focus in a dialog, and gives it back where it was.
function openDialog(title, ...content) {
  const dialog = $("dialog");
  dialog.replaceChildren(
    el(
      "div",
      { class: "dialog-head" },
      el("h2", { id: "dialog-h", tabindex: "-1" }, title),
      el("button", { type: "button", class: "chip", click: () => dialog.close() }, "Close"),
    ),
    ...content.flat(Infinity).filter(Boolean),
  );
  dialog.showModal();
  $("dialog-h").focus();
}

function listenToDialog() {
  const dialog = $("dialog");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
