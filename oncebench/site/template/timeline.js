// One faulted run over time: rates, latencies and lag, with its faults and how it came back from each.

const MARK_NAMES = ["seen", "process back", "first row", "caught up"];

function showTimelines() {
  const able = DATA.timelines.filter((each) => wanted(each.way));
  if (!able.length) return put("timelines", nothing("No faulted run of what you chose has a timeline."));
  const now = able.find((each) => each.run === state.timeline) || plainest(able);
  const groups = [...new Set(able.map((each) => each.way))];
  const choice = el(
    "select",
    {
      id: "timeline-choice",
      change: (event) => {
        choose(
          (all) => {
            all.timeline = Number(event.target.value);
          },
          ["timelines"],
        );
        $("timeline-choice").focus();
      },
    },
    groups.map((way) =>
      el(
        "optgroup",
        { label: wayTitle(way) },
        able
          .filter((each) => each.way === way)
          .map((each) =>
            el("option", { value: each.run, selected: each === now }, `${wayTitle(way)}: ${unwrap(each.title)}`),
          ),
      ),
    ),
  );
  put(
    "timelines",
    el("p", { class: "choice" }, el("label", { for: "timeline-choice" }, "Run"), " ", choice),
    timelinePlot(now),
  );
}

// What is shown first: of the runs with the fewest faults one under exactly-once, for that is what a reader looks for.
function plainest(able) {
  const marked = able.filter((each) => each.marked && each.faults.length);
  const fewest = Math.min(...marked.map((each) => each.faults.length));
  const few = marked.filter((each) => each.faults.length === fewest);
  return few.find((each) => DATA.ways[each.way][1] === "exactly-once") || few[0] || able[0];
}

function timelinePlot(told) {
  const width = roomIn("timelines", 700);
  const edge = { left: 72, right: 16, top: 20, bottom: 20 };
  const each = 118;
  const gap = 32;
  const panels = [
    {
      name: "events/s",
      lines: [
        ["sent", "sent", told.sent],
        ["seen", "rows seen, as events", told.visible],
      ],
    },
    {
      name: "latency, ms",
      lines: [
        ["p50", "p50", told.p50],
        ["p99", "p99", told.p99],
      ],
      dots: true,
    },
    { name: "lag, events", lines: [["lag", "acknowledged, and in no finished batch", told.lag]] },
  ];
  const seconds = told.sent.length * told.step;
  const x = linear(0, seconds, edge.left, width - edge.right);
  const height = edge.top + panels.length * (each + gap) + edge.bottom;
  const bottom = edge.top + panels.length * (each + gap) - gap;
  const parts = [told.faults.map((fault) => outage(fault, x, edge.top, bottom, seconds))];
  panels.forEach((panel, at) => {
    const top = edge.top + at * (each + gap);
    const most = Math.max(1, ...panel.lines.flatMap(([, , values]) => values.filter((value) => value !== null)));
    const y = linear(0, most * 1.05, top + each, top);
    parts.push(
      ticks(0, most, 3).map((tick) => [
        line(edge.left, y(tick), width - edge.right, y(tick), "rule"),
        words(edge.left - 6, y(tick) + 4, plainly(tick), "tick", "end"),
      ]),
      line(edge.left, top + each, width - edge.right, top + each, "axis-line"),
      draw(
        "text",
        { class: "axis-name", "text-anchor": "middle", transform: `translate(12 ${top + each / 2}) rotate(-90)` },
        panel.name,
      ),
    );
    panel.lines.forEach(([kind, , values]) => {
      const points = values.map((value, step) => [x((step + 0.5) * told.step), value === null ? null : y(value)]);
      // Latencies have gaps, and a lone value in a gap would be no line.
      if (panel.dots)
        parts.push(
          points
            .filter(([, py]) => py !== null)
            .map(([px, py]) => draw("circle", { class: `dot ${kind}`, cx: px, cy: py, r: 1.7 })),
        );
      parts.push(path(points, `series ${kind}`));
    });
  });
  parts.push(
    told.faults.map((fault, at) => faultMark(fault, at, told.faults, x, edge.top, bottom)),
    ticks(0, seconds, width / 110).map((tick) => words(x(tick), bottom + 16, figure(tick), "tick", "middle")),
    words(
      (edge.left + width - edge.right) / 2,
      height - 4,
      "seconds after the start of the load",
      "axis-name",
      "middle",
    ),
  );
  const title = `${wayTitle(told.way)}: ${unwrap(told.title)}`;
  const caption = [
    el("strong", {}, wayTitle(told.way)),
    ` ${unwrap(told.title)}, `,
    worded(verdictOf(told.run), unwrap(RUNS.codes[told.run])),
    ". ",
    told.step > 1 ? `A step is ${told.step} s; a latency or a lag is the highest in it. ` : "",
    told.marked ? "" : "This report does not say when its timeline starts, so its faults are not drawn. ",
    toRuns("its report", title, [told.run]),
  ];
  const names = [...new Set(told.faults.map((fault) => unwrap(fault[1])))];
  const highest = (values) => plainly(Math.max(0, ...values.filter((value) => value !== null)));
  const description =
    `${many(told.faults.length, "fault")}: ${names.join(", ")}. ` +
    `Highest p99 ${highest(told.p99)} ms, highest lag ${highest(told.lag)} events.`;
  const head = ["second", "sent/s", "seen/s", "p50 ms", "p99 ms", "lag"];
  const numbers = told.sent.map((_, step) => [
    step * told.step,
    plainly(told.sent[step]),
    plainly(told.visible[step]),
    plainly(told.p50[step]),
    plainly(told.p99[step]),
    figure(told.lag[step]),
  ]);
  return figured(
    title,
    caption,
    el("div", {}, timelineKey(panels), plot(title, description, width, height, parts)),
    head,
    numbers,
    [faultTable(told)],
  );
}

function timelineKey(panels) {
  return el(
    "ul",
    { class: "key", "aria-label": "Lines" },
    panels
      .flatMap((panel) => panel.lines.map(([kind, name], at) => [kind, at ? name : `${panel.name}: ${name}`]))
      .map(([kind, name]) =>
        el(
          "li",
          {},
          draw(
            "svg",
            { width: 30, height: 12, "aria-hidden": "true" },
            path(
              [
                [1, 6],
                [29, 6],
              ],
              `series ${kind}`,
            ),
          ),
          ` ${name}`,
        ),
      ),
    el(
      "li",
      {},
      draw(
        "svg",
        { width: 20, height: 12, "aria-hidden": "true" },
        draw("rect", { class: "outage", width: 20, height: 12 }),
      ),
      " from a fault to the first new row",
    ),
    el(
      "li",
      {},
      draw("svg", { width: 12, height: 12, "aria-hidden": "true" }, line(6, 1, 6, 12, "recovered")),
      ` at the foot: ${MARK_NAMES.join(", ")}`,
    ),
  );
}

// From the fault to the first new row; to the end where none came.
function outage(fault, x, top, bottom, seconds) {
  const [at] = fault;
  const back = fault[6] === null ? seconds : Math.min(seconds, at + fault[6]);
  return draw("rect", { class: "outage", x: x(at), y: top, width: Math.max(1, x(back) - x(at)), height: bottom - top });
}

// The fault's number above its line, where the one before leaves room; a short stroke for each mark of its recovery.
function faultMark(fault, number, all, x, top, bottom) {
  const at = x(fault[0]);
  const crowded = number > 0 && at - x(all[number - 1][0]) < 14;
  const strokes = [4, 5, 6, 7]
    .filter((mark) => fault[mark] !== null)
    .map((mark) =>
      line(x(fault[0] + fault[mark]), bottom - 7, x(fault[0] + fault[mark]), bottom, `recovered recovered-${mark}`),
    );
  return [
    line(at, top - 4, at, bottom, "fault-line"),
    crowded ? null : words(at, top - 8, String(number + 1), "fault-number", "middle"),
    strokes,
  ];
}

function faultTable(told) {
  if (!told.faults.length) return null;
  return el(
    "details",
    { class: "numbers", open: told.faults.length <= 12 },
    el("summary", {}, `Its ${many(told.faults.length, "fault")}`),
    table(
      "Faults of this run, and seconds from each until it was seen, the process was back, a new row was seen",
      ["no.", "fault", "at, s", "lost", "doubled", ...MARK_NAMES],
      told.faults.map(([at, name, lost, doubled, ...marks], number) => [
        number + 1,
        unwrap(name),
        figure(at, 1),
        figure(lost),
        figure(doubled),
        ...marks.map((mark) => figure(mark, 1)),
      ]),
      { numeric: [0, 2, 3, 4, 5, 6, 7, 8] },
    ),
  );
}
