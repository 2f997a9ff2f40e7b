// The reader's selection, and the address after # that holds all of it, so a view can be linked.

const KINDS = {
  sinks: [...new Set(DATA.configurations.map((each) => each.sink))],
  guarantees: GUARANTEES.filter((name) => DATA.configurations.some((each) => each.guarantee === name)),
  families: DATA.matrix.families.map((family) => family.name),
};
const METRICS = DATA.costs.metrics.map((metric) => metric.name);
const FIRST_METRIC = METRICS.includes("p99_ms") ? "p99_ms" : METRICS[0];
const state = {
  sinks: new Set(),
  guarantees: new Set(),
  families: new Set(),
  open: new Set(),
  metric: "",
  timeline: "", // the id of a run, which stays the same when the page is published again
  find: "",
};

// Reads the selection from the address. Values that are not on this page are ignored.
function restore() {
  const given = new URLSearchParams(location.hash.slice(1));
  const listed = (name, known) => new Set((given.get(name) || "").split(",").filter((each) => known.includes(each)));
  for (const [name, known] of Object.entries(KINDS)) state[name] = listed(name, known);
  state.open = listed("open", KINDS.families);
  state.metric = METRICS.includes(given.get("metric")) ? given.get("metric") : FIRST_METRIC;
  const id = given.get("timeline") || "";
  state.timeline = DATA.timelines.some((each) => RUNS.id[each.run] === id) ? id : "";
  state.find = given.get("find") || "";
}

function address() {
  const parts = [];
  for (const name of [...Object.keys(KINDS), "open"])
    if (state[name].size) parts.push(`${name}=${[...state[name]].map(encodeURIComponent).join(",")}`);
  if (state.metric !== FIRST_METRIC) parts.push(`metric=${state.metric}`);
  if (state.timeline) parts.push(`timeline=${encodeURIComponent(state.timeline)}`);
  if (state.find) parts.push(`find=${encodeURIComponent(state.find)}`);
  return parts.length ? `#${parts.join("&")}` : location.pathname + location.search;
}

// Changes the selection, its address, and the parts of the page that depend on it.
function updateState(change, parts) {
  change(state);
  history.replaceState(null, "", address());
  show(parts);
}

const isChosen = (name, value) => state[name].size === 0 || state[name].has(value);
function isSelected(configuration) {
  const { sink, guarantee } = DATA.configurations[configuration];
  return isChosen("sinks", sink) && isChosen("guarantees", guarantee);
}
const unwrap = (number) => DATA.text.texts[number].map((word) => DATA.text.words[word]).join(" ");
