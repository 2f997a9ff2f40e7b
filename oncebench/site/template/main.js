// Draws the page, and redraws the parts that depend on the selection, the address or the width.

const PARTS = {
  matrix: showMatrix,
  costs: showCosts,
  latencies: showLatencies,
  timelines: showTimelines,
  recoveries: showRecovery,
  "kill-points": showRandomKills,
  runs: showAllRuns,
  purpose: showOnPurpose,
};

function show(parts) {
  for (const part of parts) PARTS[part]();
  markBoxes();
}

function showAll() {
  restore();
  showFilters();
  showMetricButtons();
  show(ALL_PARTS);
}

showHeadline();
showAbout();
showCommonSetting();
showMatrixKey();
showFlatOut();
showEngines();
showCommits();
showParts();
listenToDialog();
showAll();
window.addEventListener("hashchange", showAll);
document.addEventListener("toggle", markBoxes, true); // a closed group has no size

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  showHeadlineChart();
  show(["matrix", "costs", "latencies", "timelines"]);
});
