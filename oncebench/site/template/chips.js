// Chips: buttons that are pressed or not. None pressed of a kind means all of it.

const ALL_PARTS = ["matrix", "costs", "tradeoffs", "latencies", "timelines", "returns", "landed", "runs"];

function chipGroup(legend, name, values, parts) {
  const make = (label, pressed, change) =>
    el(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": String(pressed),
        "data-kind": name,
        "data-value": label,
        click: () => {
          choose(change, parts);
          renew(name, label);
        },
      },
      label,
    );
  return el(
    "div",
    { class: "chips", role: "group", "aria-label": legend },
    el("span", { class: "legend" }, legend),
    make("all", state[name].size === 0, (now) => now[name].clear()),
    values.map((value) =>
      make(value, state[name].has(value), (now) => {
        if (!now[name].delete(value)) now[name].add(value);
      }),
    ),
  );
}

function showChips() {
  put(
    "chips",
    chipGroup("Sinks", "sinks", KINDS.sinks, ALL_PARTS),
    chipGroup("Guarantees", "guarantees", KINDS.guarantees, ALL_PARTS),
    chipGroup("Faults", "families", KINDS.families, ["matrix", "returns"]),
  );
}

function showMetricChips() {
  put(
    "metric-chips",
    el(
      "div",
      { class: "chips", role: "group", "aria-label": "Figure" },
      el("span", { class: "legend" }, "Figure"),
      DATA.costs.metrics.map((metric) =>
        el(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-pressed": String(metric.name === state.metric),
            "data-kind": "metric",
            "data-value": metric.name,
            click: () => {
              choose(
                (now) => {
                  now.metric = metric.name;
                },
                ["costs"],
              );
              renew("metric", metric.name);
            },
          },
          metric.heading,
        ),
      ),
    ),
  );
}

// The chips are made anew; the one that was pressed keeps the focus.
function renew(kind, value) {
  (kind === "metric" ? showMetricChips : showChips)();
  const same = [...document.querySelectorAll(".chip")].find(
    (each) => each.dataset.kind === kind && each.dataset.value === value,
  );
  if (same) same.focus();
}
