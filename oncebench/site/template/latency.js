// Latency distributions on the axis of HdrHistogram: each decade to the right has ten times fewer rows.

const PERCENT = DATA.curves.percent;
const rarity = (percent) => -Math.log10(1 - percent / 100);

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

// A colour and a shape for each guarantee, a dash pattern for each line.
const DASHES = 6;
const strokes = (curves) =>
  curves.map(
    (curve, at) => `curve ${DATA.configurations[curve.configuration].guarantee} dash-${Math.min(at + 1, DASHES)}`,
  );

function latencyPlot(setting) {
  const width = plotWidth("latencies", 480);
  const height = 290;
  const edge = { left: 56, right: 14, top: 12, bottom: 44 };
  const values = setting.curves.flatMap((curve) => curve.ms.filter((value) => value !== null));
  // The axis ends at the last percentile that a run has. The largest value is a mark of its own, because 100 % has no
  // place on this axis and nothing is known between the two.
  const last = Math.max(
    ...PERCENT.filter((percent, at) => percent < 100 && setting.curves.some((curve) => curve.ms[at] !== null)),
  );
  const slot = 12;
  const x = linear(0, rarity(last), edge.left, width - edge.right - slot * (setting.curves.length + 2));
  const y = linear(0, Math.max(...values) * 1.06, height - edge.bottom, edge.top);
  const kinds = strokes(setting.curves);
  const floor = height - edge.bottom;
  const atMax = (at) => x(rarity(last)) + slot * (at + 2.5);
  const parts = [
    ticks(0, y.high).map((tick) => [
      line(edge.left, y(tick), width - edge.right, y(tick), "rule"),
      svgText(edge.left - 6, y(tick) + 4, significant(tick), "tick", "end"),
    ]),
    line(edge.left, floor, width - edge.right, floor, "axis-line"),
    svgText(edge.left, height - 6, "x: percentile of rows; y: latency, ms", "axis-name"),
    [0, 50, 90, 99, 99.9, 99.99]
      .filter((percent) => percent <= last)
      .map((percent) => [
        line(x(rarity(percent)), edge.top, x(rarity(percent)), floor + 4, "rule"),
        svgText(x(rarity(percent)), floor + 17, String(percent), "tick", "middle"),
      ]),
    svgText(atMax((setting.curves.length - 1) / 2), floor + 17, "max", "tick", "middle"),
    setting.curves.map((curve, at) => {
      const { guarantee } = DATA.configurations[curve.configuration];
      const points = PERCENT.map((percent, each) => [percent, curve.ms[each]])
        .filter(([percent, value]) => percent < 100 && value !== null)
        .map(([percent, value]) => [x(rarity(percent)), y(value)]);
      const largest = curve.ms[PERCENT.indexOf(100)];
      return [
        path(points, kinds[at]),
        points.map(([px, py]) => mark(guarantee, px, py, false, 2.6)),
        largest === null ? null : mark(guarantee, atMax(at), y(largest), false, 4),
        largest === null ? null : path([[atMax(at), y(largest)], [atMax(at), floor]], `stem ${kinds[at]}`),
      ];
    }),
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
          mark(DATA.configurations[curve.configuration].guarantee, 17, 6, false, 4),
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
