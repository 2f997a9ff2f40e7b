// Plots: scales, ticks, the marks of the guarantees, and figures with their numbers as a table.

const DATA = window.ONCEBENCH;
if (!DATA || DATA.form !== 9) {
  put(
    "main",
    el(
      "p",
      { class: "notice" },
      DATA ? "data.js belongs to another version of this page." : "There is no data.js next to this page.",
      " Write both with `oncebench table --publish`.",
    ),
  );
  return;
}
const GUARANTEES = ["at-most-once", "at-least-once", "exactly-once"];

const linear = (low, high, from, to) => {
  const scale = (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  return Object.assign(scale, { low, high });
};
const logarithmic = (low, high, from, to) => {
  const scale = linear(Math.log(low), Math.log(high), from, to);
  return Object.assign((value) => scale(Math.log(value)), { low, high });
};

// Round numbers from low to high; `about`: how many.
function ticks(low, high, about = 4) {
  const raw = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step)
    found.push(Number(at.toPrecision(12)));
  return found;
}

// Ticks of a ratio axis: 1 and other round ratios.
function ratioTicks(low, high) {
  const all = [0.1, 0.2, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100];
  return all.filter((each) => each >= low * 0.999 && each <= high * 1.001);
}

// Triangle, square, circle: guarantees differ by shape, not by colour alone.
function mark(guarantee, x, y, hollow, size = 5.5) {
  const shape = { class: `mark ${guarantee}${hollow ? " hollow" : ""}` };
  if (guarantee === "at-most-once") {
    return draw("path", { ...shape, d: `M${x},${y - size * 1.15}l${size * 1.15},${size * 2.1}h${-size * 2.3}z` });
  }
  if (guarantee === "at-least-once") {
    return draw("rect", { ...shape, x: x - size * 0.9, y: y - size * 0.9, width: size * 1.8, height: size * 1.8 });
  }
  return draw("circle", { ...shape, cx: x, cy: y, r: size });
}

// A value without an interval.
const cross = (guarantee, x, y, size = 4.5) =>
  draw("path", {
    class: `cross ${guarantee}`,
    d: `M${x - size},${y - size}l${2 * size},${2 * size}m0,${-2 * size}l${-2 * size},${2 * size}`,
  });

// The line of an interval, with its two ends.
const whisker = (low, high, x, y, guarantee = "exactly-once", half = 6) => [
  line(x(low), y, x(high), y, `whisker ${guarantee}`),
  [low, high].map((end) => line(x(end), y - half, x(end), y + half, `whisker ${guarantee}`)),
];

// Those ticks that are far enough apart for their texts; 1 is always among them.
function spaced(all, scale, apart) {
  const placed = [];
  for (const tick of [1, ...all.filter((each) => each !== 1)])
    if (placed.every((other) => Math.abs(scale(other) - scale(tick)) > apart)) placed.push(tick);
  return placed;
}

const line = (x1, y1, x2, y2, kind) => draw("line", { x1, y1, x2, y2, class: kind });
const svgText = (x, y, text, kind = "", anchor = "start") =>
  draw("text", { x, y, class: kind, "text-anchor": anchor }, text);

// A path through points, with a gap where a value is missing.
function path(points, kind) {
  let open = false;
  const parts = [];
  for (const [x, y] of points) {
    if (y === null || !Number.isFinite(y)) open = false;
    else {
      parts.push(`${open ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`);
      open = true;
    }
  }
  return draw("path", { class: kind, d: parts.join("") || "M0,0" });
}

let plotCount = 0;
// An SVG with a title and a description for screen readers.
function plot(title, description, width, height, ...children) {
  plotCount += 1;
  const [titleId, descriptionId] = [`plot-${plotCount}-t`, `plot-${plotCount}-d`];
  return draw(
    "svg",
    { role: "img", "aria-labelledby": `${titleId} ${descriptionId}`, viewBox: `0 0 ${width} ${height}`, width, height },
    draw("title", { id: titleId }, title),
    draw("desc", { id: descriptionId }, description),
    ...children,
  );
}

// A plot with its caption, links to its runs, and its numbers in a table that can be opened.
function figureWithTable(title, caption, made, head, rows, more = []) {
  const numeric = head.map((_, at) => at).slice(1);
  return el(
    "figure",
    {},
    el("figcaption", {}, caption),
    made,
    more,
    el("details", { class: "numbers" }, el("summary", {}, "Numbers as a table"), table(title, head, rows, { numeric })),
  );
}

// The width of each plot in a row of plots. Plots are never scaled, so their text keeps its size on a phone.
const GAP = 36;
function plotWidth(id, least) {
  const all = $(id).clientWidth || least;
  const columns = Math.max(1, Math.floor((all + GAP) / (least + GAP)));
  return Math.max(260, Math.floor((all - (columns - 1) * GAP) / columns));
}

// Figures side by side; each is as wide as its plot, whatever its caption or table holds.
function grid(figures) {
  for (const each of figures) each.style.width = `${each.querySelector(":scope > svg").getAttribute("width")}px`;
  return el("div", { class: "grid" }, figures);
}
