// What the figures come from, the answer in short, and the way to the parts of the page.

function showAbout() {
  const told = DATA.about;
  put(
    "answer",
    told.answer.map((sentence) => el("li", {}, sentence)),
  );
  const verdicts = RUNS.verdicts
    .filter((word) => told.verdicts[word])
    .map((word) => `${figure(told.verdicts[word])} ${word}`);
  const facts = [
    ["Machine", told.machines.join("; ")],
    [
      "Versions",
      Object.entries(told.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(", ") || "-",
    ],
    ["Durability", told.durability.join("; ") || "not recorded"],
    [
      "Runs",
      `${figure(told.runs)} in ${many(RUNS.files.length, "file")}: ${verdicts.join(", ")}` +
        (told.tried ? `; ${figure(told.tried)} tried a rate and tell nothing else` : ""),
    ],
    [
      "Repeats",
      `${told.repeats} healthy ${told.repeats === "1" ? "run" : "runs"} of each way in each setting; ` +
        many(told.seeds, "seed"),
    ],
    ["Faults", `${figure(told.faults)} acted, in ${figure(told.runs - told.healthy)} runs`],
  ];
  put(
    "facts",
    facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

function showParts() {
  const parts = [...document.querySelectorAll("main > section[tabindex]")];
  const names = {
    promises: "Promises",
    cost: "Cost",
    tradeoff: "Trade-off",
    latency: "Latency",
    timeline: "Timeline",
    recovery: "Recovery",
    landings: "Landings",
    runs: "All runs",
  };
  put(
    "parts",
    parts.map((part) => el("a", { href: `#${part.id}`, click: (event) => goTo(event, part) }, names[part.id])),
  );
  document.querySelector(".skip").addEventListener("click", (event) => goTo(event, $("promises")));
}

// The address holds what is chosen, so a way to a part is gone without it.
function goTo(event, part) {
  event.preventDefault();
  part.scrollIntoView();
  part.focus({ preventScroll: true });
}
