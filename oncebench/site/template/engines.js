// The table of engines. Without a series with other engines, the part is not on the page.

function showEngines() {
  const found = DATA.engines;
  if (!found) return $("engines").remove();
  const numeric = found.headings.map((_, at) => at).filter((at) => at > 1 && at < found.headings.length - 1);
  put(
    "engines-table",
    table(
      "Engines under each guarantee, into Kafka",
      found.headings,
      found.rows.map((row) => row.cells),
      { sticky: 1, numeric },
    ),
    el(
      "p",
      { class: "hint" },
      "Reports: ",
      found.series.map(({ file, origin }, at) => [at ? "; " : "", el("a", { href: file }, file), ` (${origin})`]),
    ),
    el(
      "details",
      { class: "numbers" },
      el("summary", {}, "The commands of these runs"),
      el("pre", { tabindex: "0" }, found.rows.flatMap((row) => row.commands).join("\n")),
    ),
  );
}
