// The first screen: the answer, a table by sink, and a chart of the cost against what it buys. Then the other findings.

const HEADLINE = DATA.headline;
const NOT_MEASURED = "not measured";
const NO_RATIO = "no ratio";

function showHeadline() {
  const [first, ...rest] = HEADLINE.sentences;
  put("subject", HEADLINE.subject);
  put("answer", first ? el("strong", {}, first) : null);
  put("findings", [...rest, ...enginesLink()].map((finding) => el("li", {}, finding)));
  put("headline", HEADLINE.rows.length ? headlineTable() : null);
  put("headline-note", HEADLINE.rows.length ? headlineNote() : null);
  showHeadlineChart();
}

// The processor time of each engine, and a link to their table.
function enginesLink() {
  const part = $("engines");
  if (!DATA.engines.length) return [];
  const link = el("a", { href: "#engines", click: (event) => goTo(event, part) }, part.querySelector("h2").textContent);
  return [[HEADLINE.engines, " ", link]];
}

function headlineTable() {
  const heads = [
    ["sink", ""],
    ["exactly-once latency", [el("span", { class: "wide" }, "p50 / "), "p99, ms"], "latency"],
    ["p99 latency", "ratio", widthOf("p99_ms")],
    ["time per event", "ratio", widthOf("s_per_million")],
    ["CPU per event", "ratio", "cpu"],
    ...GUARANTEES.map((guarantee) => [
      el("span", { class: `tag ${guarantee}` }, guarantee),
      ["rows", el("span", { class: "wide" }, " wrong, in kills")],
    ]),
  ];
  return table(
    "Cost of exactly-once relative to at-least-once into the same sink, and rows lost or duplicated in kills",
    heads.map(([name, unit, kind]) =>
      el("th", { class: kind }, name, unit ? el("span", { class: "size" }, unit) : null),
    ),
    HEADLINE.rows.map((row) => {
      const { sink, variant } = DATA.configurations[row.configuration];
      const runs = runsButton(many(row.runs.length, "run"), `${sink}, ${variant}: the runs of its costs`, row.runs);
      return [
        el(
          "th",
          {},
          el("strong", {}, sink),
          el("span", { class: "size" }, el("span", {}, variant), " ", row.runs.length ? runs : null),
        ),
        latencyCell(row),
        ratioCell(row, "p99_ms", widthOf("p99_ms")),
        ratioCell(row, "s_per_million", widthOf("s_per_million")),
        ratioCell(row, "cpu_s", "cpu"),
        ...GUARANTEES.map((guarantee) => killsCell(row.kills[guarantee])),
      ];
    }),
    { sticky: 1, numeric: [1, 2, 3, 4, 5, 6, 7], kind: "headline" },
  );
}

const cellOf = (kind, main, ...small) =>
  el("td", { class: kind }, main, el("span", { class: "size" }, small.length ? small : " "));

// A narrow column has no room for the long word.
const notMeasured = () => [el("span", { class: "none wide" }, NOT_MEASURED), el("span", { class: "none narrow" }, "-")];

function latencyCell(row) {
  const [p50, p99] = [row.costs.p50_ms, row.costs.p99_ms];
  if (p50[0] === null && p99[0] === null) return cellOf("latency", notMeasured());
  const both = (at) => [el("span", { class: "wide" }, figure(p50[at]), " / "), figure(p99[at])];
  const than = [el("span", { class: "wide" }, "at-least-once "), el("span", { class: "narrow" }, "vs ")];
  return cellOf("latency", both(0), p50[1] === null ? null : [than, both(1)]);
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
    name === "p99_ms" ? row.elsewhere.map(([letter, there]) => [" ", elsewhere(letter, there)]) : null,
  );
}

// The ratio on another machine that contradicts the one above it.
const elsewhere = (letter, [middle, , , , isClear]) =>
  el("b", { class: "nb" }, `${letter}: ${isClear ? "" : "~ "}${times(middle)}`);

const wrongRows = (lost, duplicated) => [lost ? "lost" : "", duplicated ? "duplicated" : ""].filter(Boolean).join(", ");

function killsCell(kills) {
  if (!kills) return cellOf("", el("span", { class: "none" }, "not run"));
  const [count, lost, duplicated, points, all] = kills;
  const what = wrongRows(lost, duplicated);
  const counts = [lost, duplicated].filter(Boolean).map((each) => figure(each));
  return cellOf(
    "",
    el(
      "span",
      { class: what ? "wrong" : "right" },
      counts.join(", ") || "0",
      what ? el("span", { class: "wide" }, ` ${what}`) : null,
    ),
    what ? el("span", { class: "narrow" }, what.replace("duplicated", "dupl."), " ") : null,
    points < all
      ? [`in ${many(count, "kill")}`, el("span", { class: "wide" }, `, at ${points} of ${all} points`)]
      : el("span", { class: "wide" }, `in ${many(count, "kill")}`),
  );
}

function headlineNote() {
  const price = HEADLINE.price_load;
  return el(
    "p",
    { class: "note" },
    "Lower is better; 1× is at-least-once into the same sink. Below a ratio: its 95 % interval. ~: the interval ",
    "includes 1×, so there is no clear difference. ",
    HEADLINE.rows.some((row) => row.elsewhere.length) ? "A letter: another machine, which contradicts it. " : null,
    "A ratio is the median of the rounds' ratios, so not always the ratio of two medians. ",
    el("span", { class: "narrow" }, "vs: the latency of at-least-once. "),
    "A bar gives each failpoint the same weight, so it is not the table's rows divided by its kills. ",
    `Latency: ${HEADLINE.load || NOT_MEASURED}. `,
    price ? `Time and CPU: ${price}.` : null,
  );
}

// The chart shows the cost with the narrower intervals: time per event where batches took turns, else latency.
const CHARTED = HEADLINE.rows.some((row) => (row.costs.s_per_million[2] || [])[1] != null) ? "s_per_million" : "p99_ms";
const COST_NAME = CHARTED === "p99_ms" ? "p99 latency ratio" : "time per event, flat out";
// A phone has room for one of the two ratios.
const widthOf = (name) => (name === CHARTED ? "" : "wide");
const elsewhereOf = (row) => (CHARTED === "p99_ms" ? row.elsewhere : []);

const LONG_TITLE = "What it buys: rows lost or duplicated per kill, mean over the failpoints";

// Two panels with a row for each sink: the ratio with its interval, and the rows lost or duplicated per kill.
function showHeadlineChart() {
  const rows = HEADLINE.rows;
  if (!rows.length) return put("headline-chart", null);
  const all = $("headline-chart").clientWidth || 900;
  const isNarrow = all < 780;
  // A row is as high as three lines of its text.
  const [nameWidth, gap, each, bar] = isNarrow ? [88, 10, 40, 12.5] : [104, 48, 38, 12];
  const top = 20;
  const floor = top + rows.length * each;
  const half = (all - nameWidth - gap) / 2;
  const ends = rows
    .flatMap((row) => [row.costs[CHARTED][2], ...elsewhereOf(row).map(([, there]) => there)])
    .filter(Boolean)
    .flatMap((found) => found.slice(0, 3))
    .filter((value) => value > 0);
  const [low, high] = [Math.min(0.8, ...ends) * 0.94, Math.max(1.25, ...ends) * 1.06];
  const worst = Math.max(1, ...rows.flatMap((row) => GUARANTEES.map((name) => row.kills[name]?.[5] ?? 0)));
  const x = logarithmic(low, high, nameWidth, nameWidth + half);
  const z = linear(0, worst, nameWidth + half + gap, all - (isNarrow ? 34 : 110));
  const parts = [
    svgText(nameWidth, 12, isNarrow ? COST_NAME.split(",")[0] : `What exactly-once costs: ${COST_NAME}`, "panel"),
    svgText(
      nameWidth + half + gap,
      12,
      isNarrow ? "Rows per kill" : all < 1100 ? "Rows lost or duplicated per kill" : LONG_TITLE,
      "panel",
    ),
    spaced(ratioTicks(low, high), x, isNarrow ? 30 : 50).map((tick) => [
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
      elsewhereOf(row).map(([letter, there]) => costElsewhere(letter, there, x, y + each / 2 + 11)),
      costMark(row, x, y + each / 2 - (elsewhereOf(row).length ? 6 : 0)),
      GUARANTEES.map((guarantee, number) =>
        killBar(row.kills[guarantee], guarantee, z, y + (each - 3 * bar) / 2 + number * bar, bar, !isNarrow),
      ),
    );
  });
  const title = "Cost of exactly-once against the rows that it saves";
  put(
    "headline-chart",
    el("figure", {}, chartKey(), plot(title, HEADLINE.sentences.join(" "), all, floor + 20, parts)),
  );
}

function costMark(row, x, y) {
  const found = row.costs[CHARTED][2];
  if (!found) return svgText(x(1) + 6, y + 4, without(row, CHARTED), "tick");
  const [middle, low, high, , isClear] = found;
  return [low === null ? null : whisker(low, high, x, y), costPoint(middle, low, isClear, x, y)];
}

// The same on another machine, smaller, with the machine's letter.
function costElsewhere(letter, [middle, low, high, , isClear], x, y) {
  return [
    whisker(low, high, x, y, "exactly-once", 4),
    mark("exactly-once", x(middle), y, !isClear, 3.4),
    svgText(x(high) + 6, y + 4, letter, "small"),
  ];
}

// A ratio of too few rounds for an interval is a cross: a hollow mark has an interval that includes 1.
const costPoint = (middle, low, isClear, x, y) =>
  low === null ? cross("exactly-once", x(middle), y) : mark("exactly-once", x(middle), y, !isClear, 4.5);

// A bar, its guarantee's shape at its end, and its value. No row wrong: the shape stands at 0. Kills that missed a
// failpoint have no bar, and their shape is off the axis: their mean would compare other kills.
function killBar(kills, guarantee, z, y, height, hasWords) {
  if (!kills) return null;
  const [count, lost, duplicated, points, all, perKill] = kills;
  const what = wrongRows(lost, duplicated);
  const middle = y + height / 2;
  if (perKill === null) {
    const text = hasWords
      ? `${figure(lost + duplicated)} ${what} in ${many(count, "kill")}, ${points} of ${all} failpoints: no bar`
      : `${figure(lost + duplicated)} in ${many(count, "kill")}`;
    return [mark(guarantee, z(0) - 8, middle, false, 3.4), svgText(z(0) + 8, middle + 4, text, "small few")];
  }
  return [
    draw("rect", { class: `bar ${guarantee}`, x: z(0), y: y + 2, width: z(perKill) - z(0), height: height - 4 }),
    mark(guarantee, z(perKill), middle, false, 3.4),
    svgText(z(perKill) + 8, middle + 4, hasWords && what ? `${figure(perKill)} ${what}` : figure(perKill), "small"),
  ];
}

function chartKey() {
  const sample = (made) => draw("svg", { width: 14, height: 14, "aria-hidden": "true" }, made);
  const isSingle = HEADLINE.rows.some((row) => row.costs[CHARTED][2]?.[1] === null);
  return el(
    "ul",
    { class: "key", "aria-label": "Marks" },
    GUARANTEES.map((guarantee) => el("li", {}, sample(mark(guarantee, 7, 7, false, 4.5)), ` ${guarantee}`)),
    el("li", {}, sample(mark("exactly-once", 7, 7, true, 4.5)), " no clear difference from 1×"),
    el(
      "li",
      { class: "wide" },
      draw("svg", { width: 30, height: 14, "aria-hidden": "true" }, whisker(2, 28, (value) => value, 7)),
      " 95 % interval",
    ),
    isSingle ? el("li", {}, sample(cross("exactly-once", 7, 7)), " too few rounds for an interval") : null,
  );
}
