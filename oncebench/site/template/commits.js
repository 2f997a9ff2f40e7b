// The speed of earlier commits: a table per machine. Without published commits the part is not on the page.

function showCommits() {
  if (!DATA.commits.length) return $("commits").remove();
  put(
    "commits-tables",
    DATA.commits.flatMap((one) => [
      table(`Speed by commit, on ${one.machine}`, one.headings, one.rows, {
        sticky: 1,
        numeric: one.headings.map((_, at) => at).slice(1, -1),
        kind: "commits",
      }),
      el("p", { class: "hint" }, one.note),
      el(
        "p",
        { class: "hint" },
        "Figures: ",
        one.files.map((file, at) => [at ? "; " : "", el("a", { href: file }, file)]),
      ),
    ]),
  );
}
