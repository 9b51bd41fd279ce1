// The page of `calibrank rerank`: what the threshold keeps, query by query.
const fixed = (value, digits = 3) => (isMissing(value) ? "none" : value.toFixed(digits));

function drawRerankMetrics() {
  const rows = Object.entries(data.metrics).map(([name, [value, low, high]]) => [
    name,
    fixed(value, 4),
    `${fixed(low, 4)} to ${fixed(high, 4)}`,
  ]);
  const headings = ["metric", "value", "95% interval by query"];
  section(
    "metrics",
    "Held-out queries",
    el("p", { class: "lead" }, data.sentence),
    table(headings, rows, "Metrics of probabilities from maps that were fitted on other queries"),
  );
}

function drawPopulation() {
  const lines = [el("p", null, `The map is for ${data.population}.`)];
  if (!isMissing(data.warning)) lines.push(el("p", null, data.warning));
  section("population", "Which documents the map is for", ...lines);
}

function drawQueries() {
  const headings = ["query", "judged", "relevant", "highest probability", "kept", "kept, relevant"];
  const rows = data.queries.map((each) => [
    each.query,
    count(each.documents),
    fixed(each.relevant, 0),
    fixed(each.best),
    each.kept ? count(each.kept) : "nothing",
    each.kept ? fixed(each.kept_relevant, 0) : "",
  ]);
  const caption = isMissing(data.threshold)
    ? "Judged documents by query; no threshold"
    : `What the threshold ${fixed(data.threshold)} keeps by query`;
  section("queries", "Queries", table(headings, rows, caption));
}

drawTop("Reranking report", data.source, data.rows);
drawRerankMetrics();
drawPopulation();
drawQueries();
finish();
