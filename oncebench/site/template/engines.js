// The tables of engines, one per machine and version. Without a series of several engines, the part is not on the page.

function showEngines() {
  if (!DATA.engines.length) return $("engines").remove();
  put(
    "engines-table",
    DATA.engines.flatMap((one) => [
      table(
        `Into Kafka, on ${withoutVersion(one.place)}`,
        ["engine, guarantee, variant", ...one.headings, "verdict"],
        one.rows.map(({ engine, guarantee, promise, variant, figures, verdicts, behind }) => [
          namesOf(engine, guarantee, variant.replace(/^(flink|streams)-/, ""), promise),
          ...figures,
          [
            ...(promise === guarantee
              ? verdicts.map(([verdict, codes]) => outcomeTag(verdict, codes))
              : noPromise(guarantee, verdicts)),
            behind ? el("span", { class: "size" }, "fell behind") : null,
          ],
        ]),
        { sticky: 1, numeric: one.headings.map((_, at) => at + 1), kind: "engines" },
      ),
      ...one.notes.map((note) => el("p", { class: "hint" }, note)),
      el("p", { class: "hint" }, `Versions: ${[one.versions, ...commitOf(one.place)].filter(Boolean).join(", ")}.`),
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

// A place ends with the commit of oncebench that measured, which is a fact for the line of versions.
const COMMIT = /, version (\w+)$/;
function withoutVersion(place) {
  const machine = place.replace(COMMIT, "").replace(/^(\d+ cores?), (.*)$/, "$2, $1");
  const found = COSTS.machines.find(([, name]) => name === machine);
  return found ? `${machine} (machine ${found[0]})` : machine;
}
const commitOf = (place) => (COMMIT.test(place) ? [`oncebench at commit ${COMMIT.exec(place)[1]}`] : []);

// A setting that promises nothing breaks no promise. The anomalies are those that its stated guarantee forbids.
function noPromise(guarantee, verdicts) {
  const codes = verdicts.map(([, each]) => each).filter(Boolean);
  return [
    "no promise",
    codes.length ? el("span", { class: "size" }, `as ${guarantee}: ${codes.join(", ")}`) : null,
  ];
}
