// What is chosen, and its address: the part after # holds all of it, so that a view can be linked.

const KINDS = {
  sinks: [...new Set(DATA.ways.map((way) => way[0]))],
  guarantees: DELIVERIES.filter((each) => DATA.ways.some((way) => way[1] === each)),
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
  timeline: -1,
  find: "",
};

// Whatever an address holds that is not on this page is passed over.
function restore() {
  const told = new URLSearchParams(location.hash.slice(1));
  const listed = (name, known) => new Set((told.get(name) || "").split(",").filter((each) => known.includes(each)));
  for (const [name, known] of Object.entries(KINDS)) state[name] = listed(name, known);
  state.open = listed("open", KINDS.families);
  state.metric = METRICS.includes(told.get("metric")) ? told.get("metric") : FIRST_METRIC;
  const run = Number(told.get("timeline") || -1);
  state.timeline = DATA.timelines.some((each) => each.run === run) ? run : -1;
  state.find = told.get("find") || "";
}

function address() {
  const told = [];
  for (const name of [...Object.keys(KINDS), "open"])
    if (state[name].size) told.push(`${name}=${[...state[name]].map(encodeURIComponent).join(",")}`);
  if (state.metric !== FIRST_METRIC) told.push(`metric=${state.metric}`);
  if (state.timeline >= 0) told.push(`timeline=${state.timeline}`);
  if (state.find) told.push(`find=${encodeURIComponent(state.find)}`);
  return told.length ? `#${told.join("&")}` : location.pathname + location.search;
}

// Changes what is chosen, its address, and those parts of the page that show it.
function choose(change, parts) {
  change(state);
  history.replaceState(null, "", address());
  show(parts);
}

const chosen = (name, value) => state[name].size === 0 || state[name].has(value);
const wanted = (way) => chosen("sinks", DATA.ways[way][0]) && chosen("guarantees", DATA.ways[way][1]);
const unwrap = (number) => DATA.text.texts[number].map((word) => DATA.text.words[word]).join(" ");
