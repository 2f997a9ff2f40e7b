// The tables of engines, one per machine and version. Without a series of several engines, the part is not on the page.

function showEngines() {
  if (!DATA.engines.length) return $("engines").remove();
  put(
    "engines-table",
    DATA.engines.flatMap((one) => [
      table(
        `Engines under each guarantee, into Kafka, on ${one.place}`,
        ["engine, guarantee, variant", ...one.headings, "verdict"],
        one.rows.map(({ engine, guarantee, promise, variant, figures, verdicts, behind }) => [
          el(
            "span",
            { class: "configuration" },
            el("strong", {}, engine),
            el("span", { class: `tag ${guarantee}` }, promise),
            el("span", {}, variant),
          ),
          ...figures,
          [
            ...verdicts.map(([verdict, codes]) => outcomeTag(verdict, codes)),
            behind ? el("span", { class: "size" }, "fell behind") : null,
          ],
        ]),
        { sticky: 1, numeric: one.headings.map((_, at) => at + 1) },
      ),
      ...one.notes.map((note) => el("p", { class: "hint" }, note)),
      el(
        "p",
        { class: "hint" },
        "Reports: ",
        one.files.map((file, at) => [at ? "; " : "", el("a", { href: file }, file)]),
      ),
      el(
        "details",
        { class: "numbers" },
        el("summary", {}, "The commands of these runs"),
        box("The commands of these runs", el("pre", {}, one.rows.flatMap((row) => row.commands).join("\n"))),
      ),
    ]),
  );
}
