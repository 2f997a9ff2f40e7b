// Costs: for the chosen figure a table for each sink (and setting), with small plots of the ratio's interval.

const COSTS = DATA.costs;

function showCosts() {
  const at = METRICS.indexOf(state.metric);
  const metric = COSTS.metrics[at];
  const settings = COSTS.settings
    .map((setting) => ({ ...setting, rows: setting.rows.filter((row) => wanted(row.way)) }))
    .filter((setting) => setting.rows.length);
  if (!settings.length) return put("costs", nothing("No healthy run of what you chose is here."));
  // One scale for all, so that an interval is as wide as it looks; 1 is always on it.
  const ends = settings
    .flatMap((setting) => setting.rows.flatMap((row) => (row.ratio[at] || []).slice(0, 3)))
    .filter((each) => each > 0);
  const low = Math.max(0.05, Math.min(0.9, ...ends) * 0.97);
  const high = Math.min(100, Math.max(1.12, ...ends) * 1.03);
  put(
    "costs",
    inGroups("costs", settings, (group) => group.map((setting) => costTable(setting, at, metric, low, high))),
  );
}

// What is behind a summary and was opened stays so when its part is drawn anew.
const opened = new Set();

// The full comparison as it is, and what was swept behind a line for each field.
function inGroups(part, settings, drawn) {
  const groups = COSTS.groups.filter((name) => settings.some((setting) => setting.group === name));
  return groups.map((name) => {
    const group = settings.filter((setting) => setting.group === name);
    if (name === "") return drawn(group);
    const key = `${part} ${name}`;
    return el(
      "details",
      {
        class: "numbers swept",
        open: opened.has(key) || groups.length === 1,
        toggle: (event) => opened[event.currentTarget.open ? "add" : "delete"](key),
      },
      el(
        "summary",
        {},
        `${name === COSTS.other ? "Other settings" : `Swept: ${name}`}, ${many(group.length, "setting")}`,
      ),
      drawn(group),
    );
  });
}

// So narrow on a phone that ratio and interval stand there side by side; tables.css and elsewhere.css hold the column.
const intervalWidth = () => (window.innerWidth <= 640 ? 156 : 240);

function costTable(setting, at, metric, low, high) {
  const width = intervalWidth();
  const x = logarithmic(low, high, 10, width - 10);
  const caption = `${setting.sink}: ${metric.heading}. ${setting.label}`;
  const axis = el(
    "th",
    { scope: "col", class: "axis" },
    el("span", { class: "away" }, "interval, drawn"),
    costAxis(x, width, low, high),
  );
  return table(
    caption,
    ["guarantee, variant", "ratio", axis, "95 % interval", "difference", "median", "runs"],
    setting.rows.map((row) => {
      const [, guarantee, variant] = DATA.ways[row.way];
      const [ratio, told] = ratioOf(row, at);
      return [
        el(
          "span",
          { class: "way" },
          el("span", { class: `tag ${guarantee}` }, guarantee),
          el("span", {}, variant),
          row.behind ? el("span", { class: "size" }, "falls behind") : null,
        ),
        ratio,
        el("td", { class: "axis" }, interval(row, at, x, width)),
        told,
        differenceOf(row.difference[at], metric),
        absoluteOf(row.absolute[at], metric),
        toRuns(many(row.runs.length, "run"), wayTitle(row.way), row.runs),
      ];
    }),
    { sticky: 1, numeric: [1, 4, 5, 6], kind: "costs" },
  );
}

const isBaseline = (way) => DATA.ways[way][1] === COSTS.baseline[0] && DATA.ways[way][2] === COSTS.baseline[1];

function absoluteOf(found, metric) {
  return found ? figure(found[0], metric.digits) : "-";
}

function ratioOf(row, at) {
  const found = row.ratio[at];
  if (isBaseline(row.way)) return ["1×", "what the others are compared with"];
  if (!found) return ["-", "-"];
  const [middle, low, high, rounds, shows] = found;
  if (low === null) return [times(middle), `${many(rounds, "round")}: no interval`];
  return [
    times(middle),
    [
      `${times(low)} to ${times(high)}`,
      el(
        "span",
        { class: shows ? "clear" : "unclear" },
        shows ? (middle > 1 ? " ▲ more" : " ▼ less") : " ~ no difference shown",
      ),
      el("span", { class: "size" }, many(rounds, "round")),
    ],
  ];
}

function differenceOf(found, metric) {
  if (!found) return "-";
  const signed = (value) => (value === null ? "-" : `${value > 0 ? "+" : ""}${figure(value, metric.digits)}`);
  return found[1] === null ? signed(found[0]) : `${signed(found[0])} (${signed(found[1])} to ${signed(found[2])})`;
}

function interval(row, at, x, width) {
  const found = row.ratio[at];
  const [, guarantee] = DATA.ways[row.way];
  const height = 26;
  const inside = (value) => Math.max(2, Math.min(width - 2, x(Math.max(value, 1e-6))));
  const parts = [line(x(1), 0, x(1), height, "one")];
  let told = "not compared";
  if (isBaseline(row.way)) {
    parts.push(mark(guarantee, x(1), height / 2, false));
    told = "what the others are compared with";
  } else if (found) {
    const [middle, low, high, rounds, shows] = found;
    told =
      low === null
        ? `${times(middle)}, ${many(rounds, "round")}`
        : `${times(middle)}, ${times(low)} to ${times(high)}${shows ? "" : ", no difference shown"}`;
    if (low !== null) {
      parts.push(
        line(inside(low), height / 2, inside(high), height / 2, `whisker ${guarantee}`),
        ...[low, high].map((end) =>
          line(inside(end), height / 2 - 5, inside(end), height / 2 + 5, `whisker ${guarantee}`),
        ),
      );
    }
    parts.push(mark(guarantee, inside(middle), height / 2, !shows));
  }
  return plot(`${wayTitle(row.way)} beside at-least-once`, told, width, height, parts);
}

function costAxis(x, width, low, high) {
  const all = ratioTicks(low, high);
  const ticked = [1, ...all.filter((tick) => tick !== 1)].filter((tick) => tick >= low && tick <= high);
  const placed = [];
  for (const tick of ticked) if (placed.every((other) => Math.abs(x(other) - x(tick)) > 34)) placed.push(tick);
  return draw(
    "svg",
    { "aria-hidden": "true", width, height: 18, viewBox: `0 0 ${width} 18` },
    placed.map((tick) => [
      words(x(tick), 11, `${tick}×`, "tick", "middle"),
      line(x(tick), 14, x(tick), 18, "axis-line"),
    ]),
  );
}
