// The first screen: the answer, a table by sink, and a chart of the cost against what it buys.

const HEADLINE = DATA.headline;
const NOT_MEASURED = "not measured";
const NO_RATIO = "no ratio";

function showHeadline() {
  const [first, ...rest] = HEADLINE.sentences;
  put("answer", first ? el("strong", {}, first) : null, rest.length ? ` ${rest.join(" ")}` : null);
  put("headline", HEADLINE.rows.length ? [headlineTable(), headlineNote()] : null);
  showHeadlineChart();
}

function headlineTable() {
  const heads = [
    ["sink", ""],
    ["latency", "p50 / p99, ms"],
    ["p99 latency", "ratio"],
    ["time per event", "ratio", "wide"],
    ["CPU per event", "ratio"],
    ...GUARANTEES.map((guarantee) => [
      el("span", { class: `tag ${guarantee}` }, guarantee),
      ["rows", el("span", { class: "wide" }, ", in kills")],
    ]),
  ];
  return table(
    "Cost of exactly-once relative to at-least-once into the same sink, and rows lost or duplicated in kills",
    heads.map(([name, unit, kind]) =>
      el("th", { class: kind }, name, unit ? el("span", { class: "size" }, unit) : null),
    ),
    HEADLINE.rows.map((row) => {
      const { sink, variant } = DATA.configurations[row.configuration];
      const runs = runsButton(variant, `${sink}: the healthy runs behind this row`, row.runs);
      return [
        el("th", {}, el("strong", {}, sink), el("span", { class: "size" }, runs)),
        latencyCell(row),
        ratioCell(row, "p99_ms"),
        ratioCell(row, "s_per_million", "wide"),
        ratioCell(row, "cpu_s"),
        ...GUARANTEES.map((guarantee) => killsCell(row.kills[guarantee])),
      ];
    }),
    { sticky: 1, numeric: [1, 2, 3, 4, 5, 6, 7], kind: "headline" },
  );
}

const cellOf = (kind, main, ...small) =>
  el("td", { class: kind }, main, el("span", { class: "size" }, small.length ? small : " "));

// In a narrow column the long word may break.
const notMeasured = () => el("span", { class: "none" }, "not mea", el("wbr"), "sured");

function latencyCell(row) {
  const [p50, p99] = [row.costs.p50_ms, row.costs.p99_ms];
  if (p50[0] === null && p99[0] === null) return cellOf("", notMeasured());
  const both = (at) => [figure(p50[at]), " / ", el("span", { class: "nb" }, figure(p99[at]))];
  return cellOf("", both(0), p50[1] === null ? null : el("span", { class: "wide" }, "at-least-once ", both(1)));
}

// Why a row has no ratio.
const without = (row, name) => (row.costs[name][0] === null ? NOT_MEASURED : NO_RATIO);

// `~`: the interval includes 1. A ratio of too few rounds has neither an interval nor a mark.
function ratioCell(row, name, kind = "") {
  const found = row.costs[name][2];
  if (!found) return cellOf(kind, el("span", { class: "none" }, without(row, name)));
  const [middle, low, high, rounds, isClear] = found;
  if (low === null) return cellOf(kind, times(middle), many(rounds, "round"));
  return cellOf(
    kind,
    el("span", { class: isClear ? "clear" : "unclear" }, `${isClear ? "" : "~ "}${times(middle)}`),
    span(low, high),
  );
}

function killsCell(kills) {
  if (!kills) return cellOf("", el("span", { class: "none" }, "not run"));
  const [count, lost, duplicated] = kills;
  const what = [lost ? "lost" : "", duplicated ? "duplicated" : ""].filter(Boolean).join(", ");
  return cellOf(
    "",
    el(
      "span",
      { class: what ? "wrong" : "right" },
      [lost, duplicated]
        .filter(Boolean)
        .map((count) => figure(count))
        .join(", ") || "0",
      what ? el("span", { class: "wide" }, ` ${what}`) : null,
    ),
    what ? el("span", { class: "narrow" }, what.replace("duplicated", "dupl.")) : null,
    el("span", { class: "wide" }, `in ${many(count, "kill")}`),
  );
}

function headlineNote() {
  const price = HEADLINE.price_load;
  return el(
    "p",
    { class: "note" },
    "Lower is better; 1× is at-least-once. A ratio is the median of the rounds' ratios, so not always the ratio of ",
    "two medians. Below it: its 95 % interval. ~: it includes 1×, so there is no clear difference.",
    el("span", { class: "wide" }, ` Latency: ${HEADLINE.load || NOT_MEASURED}. `),
    price ? el("span", { class: "wide" }, `Time and CPU: ${price}.`) : null,
  );
}

// Two panels with a row for each sink: the ratio with its interval, and the rows lost or duplicated per kill.
function showHeadlineChart() {
  const rows = HEADLINE.rows;
  if (!rows.length) return put("headline-chart", null);
  const all = $("headline-chart").clientWidth || 900;
  const isNarrow = all < 640;
  const [nameWidth, gap, each] = isNarrow ? [76, 14, 28] : [104, 48, 32];
  const top = 20;
  const floor = top + rows.length * each;
  const half = (all - nameWidth - gap) / 2;
  const ratios = rows.map((row) => row.costs.p99_ms[2]);
  const most = Math.max(1.5, ...ratios.filter(Boolean).flatMap((found) => found.slice(0, 3)));
  const perKill = (kills) => (kills ? (kills[1] + kills[2]) / kills[0] : 0);
  const worst = Math.max(1, ...rows.flatMap((row) => GUARANTEES.map((guarantee) => perKill(row.kills[guarantee]))));
  const x = linear(0, most * 1.04, nameWidth, nameWidth + half);
  const z = linear(0, worst, nameWidth + half + gap, all - (isNarrow ? 34 : 110));
  const parts = [
    svgText(nameWidth, 12, isNarrow ? "Costs: p99 latency" : "What exactly-once costs: p99 latency ratio", "panel"),
    svgText(
      nameWidth + half + gap,
      12,
      isNarrow ? "Buys: rows per kill" : "What it buys: rows lost or duplicated per kill",
      "panel",
    ),
    ticks(0, most, isNarrow ? 3 : 5).map((tick) => [
      line(x(tick), top, x(tick), floor, "rule"),
      svgText(x(tick), floor + 14, `${significant(tick)}×`, "tick", "middle"),
    ]),
    line(x(1), top, x(1), floor, "one"),
    ticks(0, worst, isNarrow ? 2 : 4).map((tick) => [
      line(z(tick), top, z(tick), floor, "rule"),
      svgText(z(tick), floor + 14, significant(tick), "tick", "middle"),
    ]),
  ];
  rows.forEach((row, at) => {
    const y = top + at * each;
    parts.push(
      svgText(0, y + each / 2 + 4, DATA.configurations[row.configuration].sink, "sink"),
      line(0, y + each, all, y + each, "rule"),
      costMark(row, x, y + each / 2),
      GUARANTEES.map((guarantee, number) =>
        killBar(row.kills[guarantee], guarantee, z, y + 2 + number * ((each - 4) / 3), (each - 4) / 3, !isNarrow),
      ),
    );
  });
  const title = "Cost of exactly-once against the rows that it saves";
  put(
    "headline-chart",
    el("figure", {}, chartKey(isNarrow), plot(title, HEADLINE.sentences.join(" "), all, floor + 20, parts)),
  );
}

function costMark(row, x, y) {
  const found = row.costs.p99_ms[2];
  if (!found) return svgText(x(0) + 4, y + 4, without(row, "p99_ms"), "tick");
  const [middle, low, high, , isClear] = found;
  const whisker = low === null ? null : [low, high];
  return [
    whisker ? line(x(low), y, x(high), y, "whisker exactly-once") : null,
    whisker ? whisker.map((end) => line(x(end), y - 5, x(end), y + 5, "whisker exactly-once")) : null,
    mark("exactly-once", x(middle), y, !isClear),
  ];
}

// A bar, its guarantee's shape at its end, and its value. No row wrong: the shape stands at 0.
function killBar(kills, guarantee, z, y, height, hasWords) {
  if (!kills) return null;
  const [count, lost, duplicated] = kills;
  const value = (lost + duplicated) / count;
  const what = [lost ? "lost" : "", duplicated ? "duplicated" : ""].filter(Boolean).join(", ");
  const text = hasWords && what ? `${figure(value)} ${what}` : figure(value);
  return [
    draw("rect", {
      class: `bar ${guarantee}`,
      x: z(0),
      y: y + 1,
      width: Math.max(0, z(value) - z(0)),
      height: height - 2,
    }),
    mark(guarantee, z(value), y + height / 2, false, 3.4),
    svgText(z(value) + 8, y + height / 2 + 3.6, text, "small"),
  ];
}

function chartKey(isNarrow) {
  const sample = (guarantee, hollow) =>
    draw("svg", { width: 14, height: 14, "aria-hidden": "true" }, mark(guarantee, 7, 7, hollow, 4.5));
  return el(
    "ul",
    { class: "key", "aria-label": "Marks" },
    GUARANTEES.map((guarantee) => el("li", {}, sample(guarantee, false), ` ${guarantee}`)),
    isNarrow
      ? null
      : el("li", {}, sample("exactly-once", true), " no clear difference from 1×; the line is the 95 % interval"),
  );
}
