// A run with faults over time: rates, latencies and lag, its faults, and its recovery from each.

const MOST_LABELLED = 2; // more faults have numbers: their texts would overlap
const MARK_NAMES = ["seen", "process back", "first row", "caught up"];

function showTimelines() {
  const able = DATA.timelines.filter((each) => isSelected(each.configuration));
  if (!able.length) return put("timelines", emptyNote("Your selection has no run with faults that has a timeline."));
  const now = able.find((each) => RUNS.id[each.run] === state.timeline) || simplest(able);
  const groups = [...new Set(able.map((each) => each.configuration))];
  const choice = el(
    "select",
    {
      id: "timeline-choice",
      change: (event) => {
        updateState(
          (all) => {
            all.timeline = event.target.value;
          },
          ["timelines"],
        );
        $("timeline-choice").focus();
      },
    },
    groups.map((configuration) =>
      el(
        "optgroup",
        { label: fullName(configuration) },
        able
          .filter((each) => each.configuration === configuration)
          .map((each) =>
            el(
              "option",
              { value: RUNS.id[each.run], selected: each === now },
              `${fullName(configuration)}: ${unwrap(each.title)}`,
            ),
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

// The run that is drawn first: exactly-once under the fewest faults, into the sink with the most runs.
function simplest(able) {
  const marked = able.filter((each) => each.marked && each.faults.length);
  const fewest = Math.min(...marked.map((each) => each.faults.length));
  const few = marked.filter((each) => each.faults.length === fewest);
  const runsOf = (each) =>
    (HEADLINE.rows.find((row) => row.configuration === each.configuration) || { runs: [] }).runs.length;
  const outageOf = (each) => Math.max(...each.faults.map((fault) => fault[6] ?? Infinity));
  few.sort((a, b) => runsOf(b) - runsOf(a) || outageOf(a) - outageOf(b) || a.run - b.run);
  return few[0] || able[0];
}

function timelinePlot(timeline) {
  const width = plotWidth("timelines", 700);
  const isLabelled = timeline.faults.length <= MOST_LABELLED;
  const edge = { left: 72, right: 16, top: isLabelled ? 20 + 14 * (timeline.faults.length * 3) : 20, bottom: 20 };
  const each = 118;
  const gap = 32;
  const panels = [
    {
      name: "events/s",
      lines: [
        ["sent", "sent", timeline.sent],
        ["visible", "visible rows, as events", timeline.visible],
      ],
    },
    {
      name: "latency, ms",
      lines: [
        ["p50", "p50", timeline.p50],
        ["p99", "p99", timeline.p99],
      ],
    },
    { name: "lag, events", lines: [["lag", "acknowledged, in no finished batch", timeline.lag]] },
  ];
  const seconds = timeline.sent.length * timeline.step;
  const x = linear(0, seconds, edge.left, width - edge.right);
  const height = edge.top + panels.length * (each + gap) + edge.bottom;
  const bottom = edge.top + panels.length * (each + gap) - gap;
  const parts = [timeline.faults.map((fault) => outage(fault, x, edge.top, bottom, seconds))];
  panels.forEach((panel, at) => {
    const top = edge.top + at * (each + gap);
    const most = Math.max(1, ...panel.lines.flatMap(([, , values]) => values.filter((value) => value !== null)));
    const y = linear(0, most * 1.05, top + each, top);
    parts.push(
      ticks(0, most, 3).map((tick) => [
        line(edge.left, y(tick), width - edge.right, y(tick), "rule"),
        svgText(edge.left - 6, y(tick) + 4, significant(tick), "tick", "end"),
      ]),
      line(edge.left, top + each, width - edge.right, top + each, "axis-line"),
      draw(
        "text",
        { class: "axis-name", "text-anchor": "middle", transform: `translate(12 ${top + each / 2}) rotate(-90)` },
        panel.name,
      ),
    );
    panel.lines.forEach(([kind, , values]) => {
      // Each value holds for its step. A step without a value has no line.
      const points = values.flatMap((value, step) =>
        [step, step + 1].map((end) => [x(end * timeline.step), value === null ? null : y(value)]),
      );
      parts.push(path(points, `series ${kind}`));
    });
  });
  parts.push(
    isLabelled
      ? drawnInOrder(timeline.faults.map((fault, at) => faultLabels(fault, at, x, bottom, width)))
      : timeline.faults.map((fault, at) => faultMark(fault, at, timeline.faults, x, edge.top, bottom)),
    ticks(0, seconds, width / 110).map((tick) => svgText(x(tick), bottom + 16, figure(tick), "tick", "middle")),
    svgText(
      (edge.left + width - edge.right) / 2,
      height - 4,
      "seconds after the start of the load",
      "axis-name",
      "middle",
    ),
  );
  const title = `${fullName(timeline.configuration)}: ${unwrap(timeline.title)}`;
  const caption = [
    el("strong", {}, fullName(timeline.configuration)),
    ` ${unwrap(timeline.title)}, `,
    outcomeTag(outcomeOfRun(timeline.run), unwrap(RUNS.codes[timeline.run])),
    ". ",
    `Each step is ${timeline.step} s${timeline.step > 1 ? "; latency and lag are the highest in it" : ""}. `,
    timeline.marked ? "" : "This report has no start time of its timeline, so its faults are not drawn. ",
    runsButton("its report", title, [timeline.run]),
  ];
  const names = [...new Set(timeline.faults.map((fault) => unwrap(fault[1])))];
  const highest = (values) => significant(Math.max(0, ...values.filter((value) => value !== null)));
  const description =
    `${many(timeline.faults.length, "fault")}: ${names.join(", ")}. ` +
    `Highest p99 ${highest(timeline.p99)} ms, highest lag ${highest(timeline.lag)} events.`;
  const head = ["second", "sent/s", "visible/s", "p50 ms", "p99 ms", "lag"];
  const numbers = timeline.sent.map((_, step) => [
    step * timeline.step,
    significant(timeline.sent[step]),
    significant(timeline.visible[step]),
    significant(timeline.p50[step]),
    significant(timeline.p99[step]),
    figure(timeline.lag[step]),
  ]);
  return figureWithTable(
    title,
    caption,
    el("div", {}, timelineKey(panels, isLabelled), plot(title, description, width, height, parts)),
    head,
    numbers,
    [faultTable(timeline)],
  );
}

function timelineKey(panels, isLabelled) {
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
    isLabelled
      ? null
      : el(
          "li",
          {},
          draw("svg", { width: 12, height: 12, "aria-hidden": "true" }, line(6, 1, 6, 12, "recovered")),
          ` at the bottom: ${MARK_NAMES.slice(0, 3).join(", ")}`,
        ),
  );
}

// From the fault to the first new row, or to the end of the run without one.
function outage(fault, x, top, bottom, seconds) {
  const [at] = fault;
  const back = fault[6] === null ? seconds : Math.min(seconds, at + fault[6]);
  return draw("rect", { class: "outage", x: x(at), y: top, width: Math.max(1, x(back) - x(at)), height: bottom - top });
}

// The lines of all faults, then their texts.
const drawnInOrder = (labels) => [labels.map(([lines]) => lines), labels.map(([, texts]) => texts)];

// A line with a text for the fault, for the return of the process, and for the first new row.
function faultLabels(fault, number, x, bottom, width) {
  const marks = [
    [fault[0], unwrap(fault[1]), "fault-line"],
    ...[1, 2].map((mark) => [
      fault[4 + mark] === null ? null : fault[0] + fault[4 + mark],
      MARK_NAMES[mark],
      "recovered",
    ]),
  ];
  const present = marks.map((mark, row) => [...mark, row]).filter(([at]) => at !== null);
  const height = (row) => 12 + 14 * (number * 3 + row);
  const lines = present.map(([at, , kind, row]) => line(x(at), height(row) - 9, x(at), bottom, `${kind} thin`));
  // Texts come after all lines, so their halo interrupts a line that crosses them.
  const texts = present.map(([at, name, , row]) => {
    const text = name + (row ? ` after ${figure(at - fault[0], 1)} s` : ` at ${figure(at, 1)} s`);
    const isLeft = x(at) + text.length * 7.5 > width; // a bold letter of 12 px is at most 7.5 px wide on average
    return svgText(x(at) + (isLeft ? -5 : 5), height(row), text, "mark-name label", isLeft ? "end" : "start");
  });
  return [lines, texts];
}

// The fault's number above its line, unless the previous number is too close, and a short stroke for each mark.
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
    crowded ? null : svgText(at, top - 8, String(number + 1), "fault-number", "middle"),
    strokes,
  ];
}

function faultTable(timeline) {
  if (!timeline.faults.length) return null;
  // Marks that no fault of this run has are left out.
  const marks = [0, 1, 2, 3].filter((mark) => timeline.faults.some((fault) => fault[4 + mark] !== null));
  return el(
    "details",
    { class: "numbers", open: timeline.faults.length <= 12 },
    el("summary", {}, `Its ${many(timeline.faults.length, "fault")}`),
    table(
      "Faults of this run, with the seconds from each fault to its detection, recovery and first new row",
      ["no.", "fault", "at, s", "rows lost", "rows duplicated", ...marks.map((mark) => MARK_NAMES[mark])],
      timeline.faults.map((fault, number) => {
        const [at, name, lost, duplicated] = fault;
        return [
          number + 1,
          unwrap(name),
          figure(at, 1),
          figure(lost),
          figure(duplicated),
          ...marks.map((mark) => figure(fault[4 + mark], 1)),
        ];
      }),
      { numeric: [0, 2, 3, 4, 5, 6, 7, 8] },
    ),
  );
}
