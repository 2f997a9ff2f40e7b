// Latency distributions on the axis of HdrHistogram: each decade to the right has ten times fewer rows.

const PERCENT = DATA.curves.percent;
// 100 % has no finite place on this axis: the largest value is drawn at the right edge.
const LARGEST = 99.999;
const rarity = (percent) => -Math.log10(1 - Math.min(percent, LARGEST) / 100);

function showLatencies() {
  const settings = COSTS.settings
    .map((setting, at) => ({
      ...setting,
      curves: DATA.curves.settings[at].filter((curve) => isSelected(curve.configuration)),
    }))
    .filter((setting) => setting.curves.length);
  if (!settings.length)
    return put("latencies", emptyNote("Your selection has no healthy run with a latency distribution."));
  put(
    "latencies",
    inGroups("latencies", settings, (group) => grid(group.map(latencyPlot))),
  );
}

// A colour for each guarantee, a dash pattern for each of its variants.
function strokes(curves) {
  const counts = {};
  return curves.map((curve) => {
    const { guarantee } = DATA.configurations[curve.configuration];
    counts[guarantee] = (counts[guarantee] || 0) + 1;
    return `curve ${guarantee} dash-${Math.min(counts[guarantee], 4)}`;
  });
}

function latencyPlot(setting) {
  const width = plotWidth("latencies", 480);
  const height = 290;
  const edge = { left: 56, right: 14, top: 12, bottom: 44 };
  const most = Math.max(...setting.curves.flatMap((curve) => curve.ms.filter((value) => value !== null)));
  const x = linear(0, rarity(100), edge.left, width - edge.right);
  const y = linear(0, most * 1.06, height - edge.bottom, edge.top);
  const kinds = strokes(setting.curves);
  const floor = height - edge.bottom;
  const ticked = [0, 50, 90, 99, 99.9, 99.99, 100];
  const parts = [
    axes(null, y, width, height, edge, "percentile of rows", "latency, ms"),
    ticked.map((percent) => [
      line(x(rarity(percent)), edge.top, x(rarity(percent)), floor + 4, "rule"),
      svgText(
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
        runsButton(shortName(curve.configuration), `the run drawn for ${fullName(curve.configuration)}`, [curve.run]),
      ),
    ),
  );
  const at = (curve, percent) => curve.ms[PERCENT.indexOf(percent)];
  const descriptions = setting.curves.map((curve) => {
    const [p50, p99, most] = [50, 99, 100].map((percent) => significant(at(curve, percent)));
    return `${shortName(curve.configuration)}: p50 ${p50} ms, p99 ${p99} ms, max ${most} ms`;
  });
  const title = `${setting.sink}: distribution of latencies`;
  return figureWithTable(
    cardTitle(`${title}, ms`, setting),
    [el("strong", {}, setting.sink), ` ${setting.title}`],
    plot(title, descriptions.join("; "), width, height, parts),
    ["percentile", ...setting.curves.map((curve) => shortName(curve.configuration))],
    [
      ...PERCENT.map((percent, each) => [
        percent === 100 ? "max" : String(percent),
        ...setting.curves.map((curve) => significant(curve.ms[each])),
      ]),
      ["rows", ...setting.curves.map((curve) => figure(curve.n))],
    ],
    [key],
  );
}
