// Costs: a table of the selected metric for each sink and setting, with a plot of each ratio's interval.

const COSTS = DATA.costs;

function showCosts() {
  const at = METRICS.indexOf(state.metric);
  const metric = COSTS.metrics[at];
  const settings = COSTS.settings
    .map((setting) => ({ ...setting, rows: setting.rows.filter((row) => isSelected(row.configuration)) }))
    .filter((setting) => setting.rows.length);
  if (!settings.length) return put("costs", emptyNote("Your selection has no healthy run."));
  // One scale for all tables, so intervals can be compared by eye. It always includes 1.
  const ends = settings
    .flatMap((setting) => setting.rows.flatMap((row) => (row.ratio[at] || []).slice(0, 3)))
    .filter((each) => each > 0);
  const low = Math.max(0.05, Math.min(0.9, ...ends) * 0.97);
  const high = Math.min(100, Math.max(1.12, ...ends) * 1.03);
  put(
    "costs",
    inGroups("costs", settings, (group) => costsOf(group, at, metric, low, high), {
      besides: (group) => clearOnes(group, at),
      isEmpty: (group) => !group.some((setting) => isMeasured(setting, at)),
    }),
  );
}

// A setting without a ratio of the metric has nothing to compare: it is one line, not a table.
const isCompared = (setting, at) => setting.rows.some((row) => row.ratio[at]);
const isMeasured = (setting, at) => setting.rows.some((row) => row.absolute[at]);

// The tables of a group. Settings without the metric share one line.
function costsOf(group, at, metric, low, high) {
  const [measured, without] = [true, false].map((is) => group.filter((setting) => isMeasured(setting, at) === is));
  const titles = [...new Set(without.map((setting) => setting.title))];
  const sinksOf = (title) => without.filter((setting) => setting.title === title).map((setting) => setting.sink);
  const names = titles.map((title) => `${sinksOf(title).join(", ")}${title ? ` (${title})` : ""}`);
  return [
    measured.map((setting) => costOf(setting, at, metric, low, high)),
    without.length ? el("p", { class: "uncompared" }, `${metric.heading} not measured: ${names.join("; ")}.`) : null,
  ];
}

// The clear differences in a closed group, which its summary must not hide.
function clearOnes(group, at) {
  const found = group.flatMap((setting) =>
    setting.rows
      .filter((row) => row.ratio[at]?.[4])
      .map((row) => {
        const [middle, low, high] = row.ratio[at];
        const where = cardTitle(setting.sink, setting);
        return `${where}: ${shortName(row.configuration)} ${direction(middle)} ${times(middle)} (${span(low, high)})`;
      }),
  );
  return found.length ? el("p", { class: "uncompared" }, "Clear differences in these: ", found.join("; "), ".") : null;
}

const direction = (ratio) => (ratio > 1 ? "↑" : "↓");

function costOf(setting, at, metric, low, high) {
  if (isCompared(setting, at)) return costTable(setting, at, metric, low, high);
  const medians = setting.rows.map((row) => [
    `${shortName(row.configuration)} ${absoluteOf(row.absolute[at], metric)} (`,
    runsButton(many(row.runs.length, "run"), fullName(row.configuration), row.runs),
    ")",
  ]);
  return el(
    "p",
    { class: "uncompared" },
    `${cardTitle(`${setting.sink}: ${metric.heading}`, setting)}. `,
    medians.map((each, number) => [number ? ", " : "", each]),
    `; fewer than two rounds with ${COSTS.baseline.join(" ")}, so no ratio.`,
  );
}

// The title of a table or plot: its subject, and how its setting differs from the common one.
const cardTitle = (subject, setting) => (setting.title ? `${subject}. ${setting.title}` : subject);

// Groups that the reader opened; they stay open when their part is redrawn.
const openGroups = new Set();

// The full comparison, then each sweep in a group that can be opened. `besides`: what a closed group must not hide. If
// the groups before it are empty, a group is open.
function inGroups(part, settings, drawn, { besides = () => null, isEmpty = () => false } = {}) {
  const groups = COSTS.groups.filter((name) => settings.some((setting) => setting.group === name));
  let isFirst = true;
  return groups.map((name) => {
    const group = settings.filter((setting) => setting.group === name);
    const isOpen = isFirst && !isEmpty(group);
    isFirst &&= !isOpen;
    if (name === "") return drawn(group);
    const key = `${part} ${name}`;
    const made = el(
      "details",
      {
        class: "numbers sweep",
        open: openGroups.has(key) || isOpen,
        toggle: ({ currentTarget: { open } }) => {
          if (!open) openGroups.delete(key);
          else if (!isOpen) openGroups.add(key);
        },
      },
      el(
        "summary",
        {},
        `${name === COSTS.other ? "Other settings" : `Sweep: ${name}`}, ${many(group.length, "setting")}`,
      ),
      drawn(group),
    );
    return [made, besides(group)];
  });
}

// On a phone the plot is narrow enough for ratio and plot to fit side by side; see tables.css and media.css.
const intervalWidth = () => (window.innerWidth <= 640 ? 148 : window.innerWidth < 1240 ? 240 : 440);

function costTable(setting, at, metric, low, high) {
  const width = intervalWidth();
  const x = logarithmic(low, high, 10, width - 10);
  const caption = cardTitle(`${setting.sink}: ${metric.heading}`, setting);
  const axis = el(
    "th",
    { scope: "col", class: "axis" },
    el("span", { class: "away" }, "interval, drawn"),
    ratioAxis(x, width, low, high),
  );
  return table(
    caption,
    [
      "guarantee, variant",
      "ratio, 95 % interval",
      axis,
      withUnit("median", metric),
      withUnit("difference", metric),
      "runs",
    ],
    setting.rows.map((row) => {
      const { guarantee, variant } = DATA.configurations[row.configuration];
      return [
        el(
          "span",
          { class: "configuration" },
          el("span", { class: `tag ${guarantee}` }, guarantee),
          el("span", {}, variant),
          row.falls_behind ? el("span", { class: "size" }, "falls behind") : null,
        ),
        el("td", {}, ratioOf(row, at)),
        el("td", { class: "axis" }, interval(row, at, x, width)),
        absoluteOf(row.absolute[at], metric),
        differenceOf(row.difference[at], metric),
        runsButton(many(row.runs.length, "run"), fullName(row.configuration), row.runs),
      ];
    }),
    { sticky: 1, numeric: [1, 3, 4, 5], kind: "costs" },
  );
}

// A heading with the name of the metric, which ends with its unit.
const withUnit = (name, metric) => el("th", {}, name, el("span", { class: "size" }, metric.heading));

const isBaseline = (configuration) => shortName(configuration) === COSTS.baseline.join(" ");

function absoluteOf(found, metric) {
  return found ? figure(found[0], metric.digits) : "-";
}

function ratioOf(row, at) {
  const found = row.ratio[at];
  if (isBaseline(row.configuration) && row.absolute[at]) return ["1×", el("span", { class: "size" }, "the baseline")];
  if (!found) return [el("span", { class: "none" }, row.absolute[at] ? NO_RATIO : NOT_MEASURED)];
  const [middle, low, high, rounds, isClear] = found;
  if (low === null) return [times(middle), el("span", { class: "size" }, many(rounds, "round"))];
  return [
    el("span", { class: isClear ? "clear" : "unclear" }, `${isClear ? direction(middle) : "~"} ${times(middle)}`),
    el("span", { class: "size" }, span(low, high)),
  ];
}

function differenceOf(found, metric) {
  if (!found) return "-";
  const signed = (value) => (value === null ? "-" : `${value > 0 ? "+" : ""}${figure(value, metric.digits)}`);
  return found[1] === null ? signed(found[0]) : `${signed(found[0])} (${signed(found[1])} to ${signed(found[2])})`;
}

function interval(row, at, x, width) {
  const found = row.ratio[at];
  const { guarantee } = DATA.configurations[row.configuration];
  const height = 26;
  const inside = (value) => Math.max(2, Math.min(width - 2, x(Math.max(value, 1e-6))));
  const parts = [line(x(1), 0, x(1), height, "one")];
  let description = "not compared";
  if (isBaseline(row.configuration) && row.absolute[at]) {
    parts.push(mark(guarantee, x(1), height / 2, false));
    description = "the baseline";
  } else if (found) {
    const [middle, low, high, rounds, isClear] = found;
    description =
      low === null
        ? `${times(middle)}, ${many(rounds, "round")}`
        : `${times(middle)}, ${times(low)} to ${times(high)}${isClear ? "" : ", no clear difference"}`;
    const point = [inside(middle), height / 2];
    if (low === null) parts.push(cross(guarantee, ...point));
    else parts.push(whisker(low, high, inside, height / 2, guarantee), mark(guarantee, ...point, !isClear));
  }
  return plot(`${fullName(row.configuration)} relative to at-least-once`, description, width, height, parts);
}

function ratioAxis(x, width, low, high) {
  const all = ratioTicks(low, high).filter((tick) => tick >= low && tick <= high);
  return draw(
    "svg",
    { "aria-hidden": "true", width, height: 18, viewBox: `0 0 ${width} 18` },
    spaced(all, x, 34).map((tick) => [
      svgText(x(tick), 11, `${tick}×`, "tick", "middle"),
      line(x(tick), 14, x(tick), 18, "axis-line"),
    ]),
  );
}
