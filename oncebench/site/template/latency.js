// Latency distributions in the manner of HdrHistogram: each decade to the right has ten times fewer rows.

const PERCENT = DATA.curves.percent;
// 100 % lies beyond every percentile that is told: it stands at the right edge, as the largest value.
const LARGEST = 99.999;
const rarity = (percent) => -Math.log10(1 - Math.min(percent, LARGEST) / 100);

function showLatencies() {
  const settings = COSTS.settings
    .map((setting, at) => ({
      ...setting,
      curves: DATA.curves.settings[at].filter((curve) => wanted(curve.way)),
    }))
    .filter((setting) => setting.curves.length);
  if (!settings.length) return put("latencies", nothing("No healthy run of what you chose has kept its latencies."));
  put(
    "latencies",
    inGroups("latencies", settings, (group) => grid(group.map(latencyPlot))),
  );
}

// A colour for each guarantee, a dash for each of its variants.
function strokes(curves) {
  const seen = {};
  return curves.map((curve) => {
    const guarantee = DATA.ways[curve.way][1];
    seen[guarantee] = (seen[guarantee] || 0) + 1;
    return `curve ${guarantee} dash-${Math.min(seen[guarantee], 4)}`;
  });
}

function latencyPlot(setting) {
  const width = roomIn("latencies", 480);
  const height = 290;
  const edge = { left: 56, right: 14, top: 12, bottom: 44 };
  const most = Math.max(...setting.curves.flatMap((curve) => curve.ms.filter((value) => value !== null)));
  const x = linear(0, rarity(100), edge.left, width - edge.right);
  const y = linear(0, most * 1.06, height - edge.bottom, edge.top);
  const kinds = strokes(setting.curves);
  const floor = height - edge.bottom;
  const shown = [0, 50, 90, 99, 99.9, 99.99, 100];
  const parts = [
    axes(null, y, width, height, edge, "percentile of rows", "latency, ms"),
    shown.map((percent) => [
      line(x(rarity(percent)), edge.top, x(rarity(percent)), floor + 4, "rule"),
      words(
        x(rarity(percent)),
        floor + 17,
        percent === 100 ? "max" : String(percent),
        "tick",
        percent === 100 ? "end" : "middle",
      ),
    ]),
    setting.curves.map((curve, at) =>
      path(
        PERCENT.map((percent, each) => [x(rarity(percent)), curve.ms[each] === null ? null : y(curve.ms[each])]).filter(
          ([, value]) => value !== null,
        ),
        kinds[at],
      ),
    ),
  ];
  const key = el(
    "ul",
    { class: "key", "aria-label": "Lines" },
    setting.curves.map((curve, at) =>
      el(
        "li",
        {},
        draw(
          "svg",
          { width: 34, height: 12, "aria-hidden": "true" },
          path(
            [
              [1, 6],
              [33, 6],
            ],
            kinds[at],
          ),
        ),
        " ",
        toRuns(wayName(curve.way), `the run drawn of ${wayTitle(curve.way)}`, [curve.run]),
      ),
    ),
  );
  const at = (curve, percent) => curve.ms[PERCENT.indexOf(percent)];
  const told = setting.curves.map(
    (curve) =>
      `${wayName(curve.way)}: p50 ${plainly(at(curve, 50))} ms, p99 ${plainly(at(curve, 99))} ms, ` +
      `max ${plainly(at(curve, 100))} ms`,
  );
  const title = `${setting.sink}: distribution of latencies`;
  return figured(
    `${title}, ms. ${setting.label}`,
    [el("strong", {}, setting.sink), ` ${setting.label}`],
    plot(title, told.join("; "), width, height, parts),
    ["percentile", ...setting.curves.map((curve) => wayName(curve.way))],
    [
      ...PERCENT.map((percent, each) => [
        percent === 100 ? "max" : String(percent),
        ...setting.curves.map((curve) => plainly(curve.ms[each])),
      ]),
      ["rows", ...setting.curves.map((curve) => figure(curve.n))],
    ],
    [key],
  );
}
