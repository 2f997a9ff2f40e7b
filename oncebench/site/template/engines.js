// The table of engines. Without a series with other engines, the part is not on the page.

function showEngines() {
  const found = DATA.engines;
  if (!found) return $("engines").remove();
  put(
    "engines-table",
    table(
      "Engines under each guarantee, into Kafka",
      ["engine, guarantee, variant", ...found.headings, "verdict"],
      found.rows.map(({ engine, guarantee, variant, figures, verdicts }) => [
        el(
          "span",
          { class: "configuration" },
          el("strong", {}, engine),
          el("span", { class: `tag ${guarantee}` }, guarantee),
          el("span", {}, variant),
        ),
        ...figures,
        verdicts.map(([verdict, codes]) => outcomeTag(verdict, codes)),
      ]),
      { sticky: 1, numeric: found.headings.map((_, at) => at + 1) },
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
