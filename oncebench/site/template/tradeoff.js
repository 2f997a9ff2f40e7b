// Latency against processor time: a plot for each sink and setting. A mark says whether its guarantee was kept.

function showTradeoffs() {
  const [x, y] = ["p99_ms", "cpu_s"].map((name) => METRICS.indexOf(name));
  const settings = COSTS.settings
    .map((setting) => ({
      ...setting,
      rows: setting.rows.filter((row) => isSelected(row.configuration) && row.absolute[x] && row.absolute[y]),
    }))
    .filter((setting) => setting.rows.length > 1);
  if (!settings.length)
    return put("tradeoffs", emptyNote("Your selection has no two configurations with both figures."));
  put("tradeoffs", tradeoffKey(), grid(settings.map((setting) => tradeoff(setting, x, y))));
}

// A mark is filled only if every test of its configuration was kept; limit, unknown and vacuous are hollow.
const isHollow = (configuration) => outcomeOf(configuration) !== "kept";

function outcomeOf(configuration) {
  const { outcome, broken_on_purpose: broken } = DATA.configurations[configuration];
  return broken ? "broken" : (outcome ?? "unknown");
}

function tradeoffKey() {
  const drawn = (guarantee, hollow) =>
    draw("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark(guarantee, 8, 8, hollow));
  return el(
    "ul",
    { class: "key", "aria-label": "What the marks mean" },
    KINDS.guarantees.map((guarantee) => el("li", {}, drawn(guarantee, false), ` ${guarantee}`)),
    el("li", {}, drawn("exactly-once", true), " hollow: not kept in every test"),
  );
}

function tradeoff(setting, atX, atY) {
  const width = plotWidth("tradeoffs", 340);
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
  const title = `${setting.sink}: p99 latency against processor time`;
  const points = setting.rows.map((row) => ({ row, x: row.absolute[atX], y: row.absolute[atY] }));
  const labels = spreadLabels(
    points.map((point) => y(point.y[0])),
    13,
    height - edge.bottom - 4,
  );
  const parts = [axes(x, y, width, height, edge, "p99 latency, ms", "CPU s per million events")];
  points.forEach((point, at) => {
    const [px, py, guarantee] = [x(point.x[0]), y(point.y[0]), DATA.configurations[point.row.configuration].guarantee];
    if (point.x[1] !== null) parts.push(line(x(point.x[1]), py, x(point.x[2]), py, `whisker ${guarantee}`));
    if (point.y[1] !== null) parts.push(line(px, y(point.y[1]), px, y(point.y[2]), `whisker ${guarantee}`));
    const right = px < width * 0.6;
    if (Math.abs(labels[at] - py) > 5) parts.push(line(px, py, px + (right ? 9 : -9), labels[at], "leader"));
    parts.push(
      svgText(
        px + (right ? 11 : -11),
        labels[at] + 4,
        DATA.configurations[point.row.configuration].variant,
        "label",
        right ? "start" : "end",
      ),
    );
  });
  points.forEach((point) =>
    parts.push(
      mark(
        DATA.configurations[point.row.configuration].guarantee,
        x(point.x[0]),
        y(point.y[0]),
        isHollow(point.row.configuration),
      ),
    ),
  );
  const descriptions = points.map(
    (point) =>
      `${shortName(point.row.configuration)}: ${figure(point.x[0])} ms, ${figure(point.y[0])} CPU s per million events`,
  );
  const between = (found, digits = 0) =>
    found[1] === null ? "-" : `${figure(found[1], digits)} to ${figure(found[2], digits)}`;
  return figureWithTable(
    cardTitle(title, setting),
    [el("strong", {}, setting.sink), ` ${setting.title}`],
    plot(title, descriptions.join("; "), width, height, parts),
    [
      "guarantee, variant",
      "p99 ms",
      "95 % interval",
      "CPU s per million events",
      "95 % interval",
      "guarantee kept?",
      "runs",
    ],
    points.map((point) => [
      shortName(point.row.configuration),
      figure(point.x[0]),
      between(point.x),
      figure(point.y[0]),
      between(point.y),
      outcomeTag(outcomeOf(point.row.configuration)),
      runsButton(many(point.row.runs.length, "run"), fullName(point.row.configuration), point.row.runs),
    ]),
  );
}

// Both axes: light rules, ticks at round numbers, and the names.
function axes(x, y, width, height, edge, nameX, nameY) {
  const floor = height - edge.bottom;
  return [
    ticks(y.low, y.high).map((tick) => [
      line(edge.left, y(tick), width - edge.right, y(tick), "rule"),
      svgText(edge.left - 6, y(tick) + 4, significant(tick), "tick", "end"),
    ]),
    x
      ? ticks(x.low, x.high, width / 90).map((tick) => [
          line(x(tick), floor, x(tick), floor + 4, "axis-line"),
          svgText(x(tick), floor + 16, significant(tick), "tick", "middle"),
        ])
      : null,
    line(edge.left, floor, width - edge.right, floor, "axis-line"),
    svgText((edge.left + width - edge.right) / 2, height - 6, nameX, "axis-name", "middle"),
    draw(
      "text",
      { class: "axis-name", "text-anchor": "middle", transform: `translate(12 ${(edge.top + floor) / 2}) rotate(-90)` },
      nameY,
    ),
  ];
}
