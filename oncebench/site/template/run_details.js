// The runs behind a figure, each with its verdict, its seed, its file and line, and the command that repeats it.

const SYMBOLS = { kept: "✓", broken: "✗", limit: "◐", unknown: "?", vacuous: "○" };
const RUNS = DATA.runs;

const shortName = (number) => `${DATA.configurations[number].guarantee} ${DATA.configurations[number].variant}`;
const fullName = (number) => `${DATA.configurations[number].sink} ${shortName(number)}`;
// Sink or engine, guarantee and variant in one cell, which stays visible while its table scrolls. `promise` is the text
// of the guarantee.
const namesOf = (place, guarantee, variant, promise = guarantee, ...more) =>
  el(
    "span",
    { class: "configuration" },
    el("strong", {}, place),
    el("span", { class: `tag ${guarantee}` }, promise),
    el("span", {}, variant),
    more,
  );
function configurationHead(configuration) {
  const { sink, guarantee, variant, broken_on_purpose: broken } = DATA.configurations[configuration];
  const purpose = broken ? el("span", { class: "purpose" }, `broken on purpose: ${broken}`) : null;
  return namesOf(sink, guarantee, variant, guarantee, purpose);
}
function guaranteeAndVariant(configuration) {
  const { guarantee, variant } = DATA.configurations[configuration];
  return [el("span", { class: `tag ${guarantee}` }, guarantee), " ", el("span", { class: "nb" }, variant)];
}
const outcomeOfRun = (run) => RUNS.outcomes[RUNS.outcome[run]];

// `✓ kept`: a symbol, hidden from screen readers, and the outcome.
function outcomeTag(outcome, codes = "") {
  return el(
    "span",
    { class: `outcome ${outcome}` },
    el(
      "span",
      { class: "whole" },
      el("span", { class: "symbol", "aria-hidden": "true" }, SYMBOLS[outcome]),
      ` ${outcome}`,
    ),
    codes ? ` ${codes}` : null,
  );
}

function rowCounts(lost, duplicated) {
  return [lost ? `${figure(lost)} lost` : "", duplicated ? `${figure(duplicated)} duplicated` : ""]
    .filter(Boolean)
    .join(", ");
}

function reportLink(run) {
  const file = RUNS.files[RUNS.file[run]];
  return el("a", { href: `runs/${encodeURIComponent(file)}`, class: "source" }, `${file} line ${RUNS.line[run]}`);
}

// Each code that occurs in the texts: its meaning and its exact rule, then the terms of these rules.
function codeRules(texts) {
  const named = new Set(texts.join(" ").split(/[^\w-]+/));
  const found = Object.entries(DATA.codes).filter(([code]) => named.has(code));
  const terms = new Set(found.flatMap(([, code]) => code.terms));
  const entries = [
    ...found.map(([code, { means, rule }]) => [code, `${means}: ${rule}`]),
    ...Object.entries(DATA.terms).filter(([term]) => terms.has(term)),
  ];
  const lines = entries.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, withCode(text))));
  const heading = el("p", {}, "What the codes mean, and how they are counted");
  return lines.length ? [heading, el("dl", { class: "facts" }, lines)] : [];
}

// Text in which `name` is code.
const withCode = (text) => text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));

// A command breaks only between its options, unless one option is longer than the line.
const command = (text) =>
  el(
    "code",
    { class: "command" },
    text.split(" --").map((part, at) => [at ? " " : null, el("span", { class: "option" }, at ? `--${part}` : part)]),
  );

// A button that opens the runs behind a figure.
function runsButton(label, title, runs) {
  return el(
    "button",
    { type: "button", class: "link", "aria-label": `${label}: ${title}`, click: () => showRuns(title, runs) },
    label,
  );
}

function showRuns(title, runs) {
  openDialog(
    title,
    table(
      "Its runs",
      ["guarantee, variant", "verdict", "seed", "rows lost", "rows duplicated", "report", "command to repeat it"],
      runs.map((run) => [
        guaranteeAndVariant(RUNS.configuration[run]),
        outcomeTag(outcomeOfRun(run), unwrap(RUNS.codes[run])),
        RUNS.seed[run],
        figure(RUNS.lost[run]),
        figure(RUNS.duplicated[run]),
        reportLink(run),
        command(unwrap(RUNS.command[run])),
      ]),
      { numeric: [2, 3, 4], kind: "stacked" },
    ),
    codeRules(runs.map((run) => unwrap(RUNS.codes[run]))),
  );
}

// The browser keeps the focus inside the dialog, and restores it when the dialog closes.
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
  markBoxes();
  $("dialog-h").focus();
}

function listenToDialog() {
  const dialog = $("dialog");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
