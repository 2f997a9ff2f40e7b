// What each guarantee costs flat out: a table per machine and version. Without a series the part is not on the page.

function showFlatOut() {
  if (!DATA.flat_out.length) return $("flat-out").remove();
  put(
    "flat-out-tables",
    DATA.flat_out.flatMap((one) => [
      table(
        `Batches of the whole pipeline, on ${one.machine}`,
        ["sink, guarantee, variant", ...one.headings],
        one.rows.map(([sink, guarantee, variant, ...figures]) => [
          namesOf(sink, guarantee, variant),
          ...figures.map((text) => text || "-"),
        ]),
        { sticky: 1, numeric: one.headings.map((_, at) => at + 1), kind: "engines" },
      ),
      el("p", { class: "hint" }, `oncebench at commit ${one.commit}. Series that count together: ${one.files.length}.`),
      ...one.files.map(([file, command]) =>
        el("p", { class: "hint" }, "Batches: ", el("a", { href: file }, file), ". Command: ", el("code", {}, command)),
      ),
    ]),
  );
}
