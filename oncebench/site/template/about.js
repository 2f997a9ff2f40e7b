// The answer in short, the origin of the figures, and the links to the parts of the page.

function showAbout() {
  const about = DATA.about;
  const verdicts = RUNS.outcomes
    .filter((outcome) => about.verdicts[outcome])
    .map((outcome) => `${figure(about.verdicts[outcome])} ${outcome}`);
  const facts = [
    [
      "Machines",
      el(
        "ul",
        {},
        [...about.machines].sort((a, b) => letterOf(a).localeCompare(letterOf(b))).map((machine) =>
          el("li", {}, withLetter(machine)),
        ),
      ),
    ],
    [
      "Versions",
      Object.entries(about.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(", ") || "-",
    ],
    ["Durability", about.durability.join("; ") || "not recorded"],
    [
      "Runs",
      `${figure(about.runs)} in ${many(RUNS.files.length, "file")}: ${verdicts.join(", ")}` +
        (about.rate_probes ? `; ${figure(about.rate_probes)} only probed a rate` : ""),
    ],
    [
      "Repeats",
      `${about.repeats} healthy ${about.repeats === "1" ? "run" : "runs"} of each configuration in each setting; ` +
        many(about.seeds, "seed"),
    ],
    ["Faults", `${figure(about.faults)} took effect, in ${figure(about.runs - about.healthy)} runs`],
  ];
  put(
    "facts",
    facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

// A machine without a letter comes last: no cost was measured on it.
const letterOf = (machine) => (DATA.costs.machines.find(([, name]) => machine.startsWith(name)) || ["~"])[0];

// `A: ` and so on before a machine that titles name by its letter.
function withLetter(machine) {
  const found = DATA.costs.machines.find(([, name]) => machine.startsWith(name));
  return found ? [el("strong", {}, `machine ${found[0]}`), `: ${machine}`] : machine;
}

// The setting that all full comparisons share, named once instead of in each title.
function showCommonSetting() {
  const common = DATA.costs.common;
  put("common-setting", common ? `Setting, unless a title has another: ${common}. ` : null);
}

// The links take their names from the headings, so the two always agree.
function showParts() {
  const parts = [...document.querySelectorAll("main > section[tabindex]")];
  put(
    "parts",
    parts.map((part) =>
      el("a", { href: `#${part.id}`, click: (event) => goTo(event, part) }, part.querySelector("h2").textContent),
    ),
  );
  document.querySelector(".skip").addEventListener("click", (event) => goTo(event, $("correctness")));
}

// The address holds the selection, so a link to a part must not replace it.
function goTo(event, part) {
  event.preventDefault();
  part.scrollIntoView();
  part.focus({ preventScroll: true });
}
