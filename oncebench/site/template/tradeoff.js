// Latency against price, a plot for each sink (and setting): what a way takes of both, and if its promise was kept.

function showTradeoffs() {
  const [x, y] = ["p99_ms", "cpu_s"].map((name) => METRICS.indexOf(name));
  const settings = COSTS.settings
    .map((setting) => ({
      ...setting,
      rows: setting.rows.filter((row) => wanted(row.way) && row.absolute[x] && row.absolute[y]),
    }))
    .filter((setting) => setting.rows.length > 1);
  const none = "Of what you chose no two ways have both figures: a price wants room between the batches.";
  if (!settings.length) return put("tradeoffs", nothing(none));
  put(
    "tradeoffs",
    tradeoffKey(),
    grid(settings.map((setting) => tradeoff(setting, x, y))),
  );
}

// Filled is only what kept its promise wherever it was tested; a limit, unknown or vacuous is none of that.
const isHollow = (way) => DATA.ways[way][4] !== "kept" || DATA.ways[way][3] !== "";

function tradeoffKey() {
  const drawn = (guarantee, hollow) =>
    draw("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark(guarantee, 8, 8, hollow));
  return el(
    "ul",
    { class: "key", "aria-label": "What the marks mean" },
    KINDS.guarantees.map((guarantee) => el("li", {}, drawn(guarantee, false), ` ${guarantee}`)),
    el("li", {}, drawn("exactly-once", true), " hollow: its promise was not kept throughout"),
  );
}

function tradeoff(setting, atX, atY) {
  const width = roomIn("tradeoffs", 340);
  const height = 270;
  const edge = { left: 56, right: 14, top: 12, bottom: 42 };
  const ends = (at) => setting.rows.flatMap((row) => row.absolute[at].slice(0, 3)).filter((value) => value !== null);
  const range = (at) => {
    const [low, high] = [Math.min(...ends(at)), Math.max(...ends(at))];
    const more = (high - low || high || 1) * 0.12;
    return [Math.max(0, low - more), high + more];
  };
  const x = linear(...range(atX), edge.left, width - edge.right);
  const y = linear(...range(atY), height - edge.bottom, edge.top);
  const title = `${setting.sink}: p99 latency against CPU`;
  const points = setting.rows.map((row) => ({ row, x: row.absolute[atX], y: row.absolute[atY] }));
  const labels = apart(
    points.map((point) => y(point.y[0])),
    13,
    height - edge.bottom - 4,
  );
  const parts = [axes(x, y, width, height, edge, "p99 latency, ms", "CPU s for a million events")];
  points.forEach((point, at) => {
    const [px, py, guarantee] = [x(point.x[0]), y(point.y[0]), DATA.ways[point.row.way][1]];
    if (point.x[1] !== null) parts.push(line(x(point.x[1]), py, x(point.x[2]), py, `whisker ${guarantee}`));
    if (point.y[1] !== null) parts.push(line(px, y(point.y[1]), px, y(point.y[2]), `whisker ${guarantee}`));
    const right = px < width * 0.6;
    if (Math.abs(labels[at] - py) > 5) parts.push(line(px, py, px + (right ? 9 : -9), labels[at], "leader"));
    parts.push(
      words(px + (right ? 11 : -11), labels[at] + 4, DATA.ways[point.row.way][2], "label", right ? "start" : "end"),
    );
  });
  points.forEach((point) =>
    parts.push(mark(DATA.ways[point.row.way][1], x(point.x[0]), y(point.y[0]), isHollow(point.row.way))),
  );
  const told = points.map(
    (point) => `${wayName(point.row.way)}: ${figure(point.x[0])} ms, ${figure(point.y[0])} CPU s for a million events`,
  );
  const between = (found, digits = 0) =>
    found[1] === null ? "-" : `${figure(found[1], digits)} to ${figure(found[2], digits)}`;
  return figured(
    `${title}. ${setting.label}`,
    [el("strong", {}, setting.sink), ` ${setting.label}`],
    plot(title, told.join("; "), width, height, parts),
    ["guarantee, variant", "p99 ms", "95 % interval", "CPU s/M", "95 % interval", "its promise", "runs"],
    points.map((point) => [
      wayName(point.row.way),
      figure(point.x[0]),
      between(point.x),
      figure(point.y[0]),
      between(point.y),
      worded(DATA.ways[point.row.way][3] === "" ? (DATA.ways[point.row.way][4] ?? "unknown") : "broken"),
      toRuns(many(point.row.runs.length, "run"), wayTitle(point.row.way), point.row.runs),
    ]),
  );
}

// Both axes with light rules across, ticks in round numbers, and what they are of.
function axes(x, y, width, height, edge, nameX, nameY) {
  const floor = height - edge.bottom;
  return [
    ticks(y.low, y.high).map((tick) => [
      line(edge.left, y(tick), width - edge.right, y(tick), "rule"),
      words(edge.left - 6, y(tick) + 4, plainly(tick), "tick", "end"),
    ]),
    x
      ? ticks(x.low, x.high, width / 90).map((tick) => [
          line(x(tick), floor, x(tick), floor + 4, "axis-line"),
          words(x(tick), floor + 16, plainly(tick), "tick", "middle"),
        ])
      : null,
    line(edge.left, floor, width - edge.right, floor, "axis-line"),
    words((edge.left + width - edge.right) / 2, height - 6, nameX, "axis-name", "middle"),
    draw(
      "text",
      { class: "axis-name", "text-anchor": "middle", transform: `translate(12 ${(edge.top + floor) / 2}) rotate(-90)` },
      nameY,
    ),
  ];
}
