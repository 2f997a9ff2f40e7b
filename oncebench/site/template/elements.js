// Creates elements. This is the only file that builds markup, and text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) made.append(child instanceof Node ? child : String(child));
  }
  return made;
}

const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const $ = (id) => document.getElementById(id);
const put = (id, ...children) => $(id).replaceChildren(...children.flat(Infinity).filter((child) => child));

// Numbers with thousands separators and a fixed number of digits; "-" for a missing value.
function figure(value, digits = 0) {
  if (value === null || value === undefined) return "-";
  return value.toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
const significant = (value) =>
  value === null || value === undefined ? "-" : value.toLocaleString("en-GB", { maximumSignificantDigits: 4 });
// A ratio. One that is not exactly 1 is never rounded to 1.
function times(value) {
  if (value === null || value === undefined) return "-";
  return `${value.toFixed(value !== 1 && Math.abs(value - 1) < 0.005 ? 3 : 2)}×`;
}
const span = (low, high) => `${low.toFixed(2)} to ${high.toFixed(2)}`;
const many = (count, word) => `${figure(count)} ${word}${count === 1 ? "" : "s"}`;

// A table in a box that scrolls sideways, so the page never does. `head` and `rows` hold cells or texts.
function table(caption, head, rows, { sticky = 0, numeric = [], kind = "" } = {}) {
  const cell = (content, at, name) => {
    const here = at < sticky;
    const classes = [here ? `stick stick-${at}` : "", numeric.includes(at) ? "num" : ""].join(" ").trim();
    const made =
      content instanceof HTMLTableCellElement ? content : el(here && name === "td" ? "th" : name, {}, content);
    if (made.tagName === "TH" && !made.scope) made.scope = name === "th" ? "col" : "row";
    if (kind === "stacked" && name === "td") made.dataset.label = head[at];
    if (classes) made.className = `${made.className} ${classes}`.trim();
    return made;
  };
  return box(
    caption,
    el(
      "table",
      { class: kind },
      captionOf(caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          head.map((content, at) => cell(content, at, "th")),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((content, at) => cell(content, at, "td")),
          ),
        ),
      ),
    ),
  );
}

function box(label, made) {
  return el("div", { class: "box", "aria-label": label }, made);
}

// A box that scrolls is a region that the Tab key reaches; another one is not.
function markBoxes() {
  for (const each of document.querySelectorAll(".box")) {
    const [isWide, isHigh] = [each.scrollWidth > each.clientWidth + 1, each.scrollHeight > each.clientHeight + 1];
    each.classList.toggle("scrolls", isWide);
    for (const [name, value] of Object.entries({ role: "region", tabindex: "0" }))
      if (isWide || isHigh) each.setAttribute(name, value);
      else each.removeAttribute(name);
  }
}

const captionOf = (text) => el("caption", {}, el("span", {}, text));
const emptyNote = (text) => el("p", { class: "nothing" }, text);
