// Filters: buttons that are pressed or not. If none of a group is pressed, all of its values are displayed.

const ALL_PARTS = ["matrix", "costs", "latencies", "timelines", "recoveries", "kill-points", "runs", "purpose"];

// What the faults of a family have in common.
const FAMILY_MEANING = {
  healthy: "no fault",
  kills: "kill -9 of the whole pipeline, once at each failpoint",
  pairs: "a second kill in the replay of the first one's batch",
  lives: "other faults of the pipeline's processes: stops, zombies, killed workers, a crash loop",
  executor: "Spark's executor is killed or stopped",
  broker: "the Kafka broker is killed, stopped or restarted, or a transaction is hijacked",
  postgres: "the PostgreSQL server or one of its sessions is killed, stopped or restarted",
  link: "a connection is cut, or a commit or an answer is late or lost",
  timeout: "an outage that outlasts the transaction time-out",
  disk: "a disk is full",
  checkpoint: "a file of the checkpoint is cut, empty, lost or damaged",
  "old-checkpoint": "the checkpoint is rolled back to an older one",
  "no-checkpoint": "the checkpoint is deleted",
  random: "kill -9 of the whole pipeline at random times",
};

// A family that is named like a sink says that it is one of faults.
const familyLabel = (name) => (KINDS.sinks.includes(name) ? `${name} faults` : name);

function filterGroup(legend, name, values, parts, text = (value) => value) {
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
          updateState(change, parts);
          redrawFilters(name, label);
        },
      },
      text(label),
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

function showFilters() {
  put(
    "filters",
    filterGroup("Sinks", "sinks", KINDS.sinks, ALL_PARTS),
    filterGroup("Guarantees", "guarantees", KINDS.guarantees, ALL_PARTS),
    filterGroup("Faults", "families", KINDS.families, ["matrix", "recoveries"], familyLabel),
  );
}

function showMetricButtons() {
  put(
    "metric-buttons",
    el(
      "div",
      { class: "chips", role: "group", "aria-label": "Metric" },
      el("span", { class: "legend" }, "Metric"),
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
              updateState(
                (now) => {
                  now.metric = metric.name;
                },
                ["costs"],
              );
              redrawFilters("metric", metric.name);
            },
          },
          metric.heading,
        ),
      ),
    ),
    el(
      "p",
      { class: "hint", role: "status" },
      DATA.costs.metrics
        .filter((metric) => metric.name === state.metric)
        .map((metric) => [el("strong", {}, metric.heading), `: ${metric.means}.`]),
    ),
  );
}

// Creates the buttons again; the one that was pressed keeps the focus.
function redrawFilters(kind, value) {
  (kind === "metric" ? showMetricButtons : showFilters)();
  const same = [...document.querySelectorAll(".chip")].find(
    (each) => each.dataset.kind === kind && each.dataset.value === value,
  );
  if (same) same.focus();
}
