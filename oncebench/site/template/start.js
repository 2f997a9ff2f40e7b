// Draws the page, and again what depends on the choice, the address, or the width.

const PARTS = {
  matrix: showMatrix,
  costs: showCosts,
  tradeoffs: showTradeoffs,
  latencies: showLatencies,
  timelines: showTimelines,
  returns: showReturns,
  landed: showLanded,
  runs: showAllRuns,
};

function show(parts) {
  for (const part of parts) PARTS[part]();
}

function showAll() {
  restore();
  showChips();
  showMetricChips();
  show(ALL_PARTS);
}

showAbout();
showParts();
showMatrixKey();
listenToDialog();
showAll();
window.addEventListener("hashchange", showAll);

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  show(["costs", "tradeoffs", "latencies", "timelines"]);
});
