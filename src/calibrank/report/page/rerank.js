// The page of `calibrank search fit`: what the threshold keeps, query by query.
const rounded = (value) => percent(Math.round(value * 100) / 100);
const withInterval = ([value, low, high]) =>
  isMissing(value) ? ["none", ""] : [rounded(value), `${rounded(low)} to ${rounded(high)}`];

// One sentence in large type; everything else is in the tables below it.
function headline({ aim, wanted, threshold, precision, recall }) {
  const bold = (text) => el("b", null, text);
  if (threshold === null) {
    return ["No threshold reaches a ", aim, " of ", bold(rounded(wanted)), "."];
  }
  const from = ["At ", bold(digits(threshold, 3)), " or more, "];
  return aim === "precision"
    ? [...from, bold(rounded(precision[0])), " of the judged documents are relevant."]
    : [...from, bold(rounded(recall[0])), " of the relevant judged documents are kept."];
}

// The run is cut by the map of all queries, so its counts are not those of the held-out ones.
function writtenSentence({ documents, kept, queries, answered }) {
  const run = `In the whole run, ${count(kept)} of ${count(documents)} documents reach it`;
  return `${run}, judged or not; ${count(answered)} of ${count(queries)} queries get an answer.`;
}

function drawThreshold() {
  const { cut } = data;
  if (isMissing(cut)) {
    const lead = el("p", { class: "lead" }, "Probabilities, without a threshold.");
    const hint = "Ask for one with --precision or --recall.";
    section("threshold", "Threshold", lead, el("p", { class: "small" }, hint));
    return;
  }
  const answered = data.queries.filter((each) => each.kept).length;
  const counts = `${count(answered)} of ${count(data.queries.length)} queries get an answer`;
  const basis =
    "Held-out queries, on which the threshold was chosen: on new ones, count on the lower end of an " +
    `interval. Intervals of 95% resample queries. ${counts}.`;
  const rows = [
    ["Precision", ...withInterval(cut.precision)],
    ["Recall", ...withInterval(cut.recall)],
    ["Queries with an answer", ...withInterval(cut.answered)],
  ];
  const caption = "What the threshold does on judged documents";
  section(
    "threshold",
    "Threshold",
    el("p", { class: "lead", id: "sentence" }, headline(cut)),
    el("p", { class: "small" }, basis),
    table(["measure", "value", "95% interval"], rows, caption),
    el("p", { class: "small" }, writtenSentence(data.written)),
  );
}

const ends = ([, low, high]) => `${digits(low, 3)} to ${digits(high, 3)}`;

function drawRerankMetrics() {
  const rows = Object.entries({ ...data.metrics, ...data.errors }).map(([name, estimate]) => [
    metricTitle(name),
    digits(estimate[0], 3),
    // Resamples of a plain ECE lie above it: what calibrated probabilities would show says more.
    name === "ECE" ? `${ends(estimate)} if calibrated` : ends(estimate),
  ]);
  const verdict = data.better
    ? "The map is better than a constant."
    : "The map may be no better than a constant: do not rely on differences between documents.";
  const basis =
    "Intervals of 95% resample queries. An ECE is above 0 even for calibrated probabilities: its " +
    "interval is where 95% of the ECEs would lie if these probabilities were right.";
  const caption = "Probabilities of each query from a map that was fitted on other queries";
  section(
    "metrics",
    "Held-out queries",
    el("p", { id: "verdict" }, verdict),
    table(["metric", "value", "95% interval"], rows, caption),
    el("p", { class: "small" }, basis),
  );
}

function drawPopulation() {
  const relevant = isMissing(data.relevant)
    ? "Grades are a judge's probabilities."
    : `Relevant is "${data.relevant}".`;
  const share = `${rounded(data.rate)} of the judged documents are relevant.`;
  const lines = [el("p", null, `The map is for ${data.population}. ${relevant} ${share}`)];
  for (const each of [data.coverage, data.warning]) {
    if (!isMissing(each) && each) lines.push(el("p", null, each));
  }
  section("population", "Which documents the map is for", ...lines);
}

function drawQueries() {
  const hasThreshold = !isMissing(data.cut);
  const headings = ["query", "relevant", "highest"];
  if (hasThreshold) headings.push("kept", "relevant of these");
  const rows = data.queries.map((each) => {
    const cells = [
      nameOf(each.query),
      `${digits(each.relevant, 0)} of ${count(each.documents)}`,
      digits(each.best, 3),
    ];
    if (!hasThreshold) return cells;
    const kept = each.kept ? count(each.kept) : "nothing";
    return [...cells, kept, each.kept ? digits(each.kept_relevant, 0) : ""];
  });
  const caption =
    "Judged documents by query, those with the highest probability first: how many are relevant, " +
    `the highest probability${hasThreshold ? ", and what the threshold keeps" : ""}`;
  // Like tables of segments, it fits a phone.
  section("queries", "Queries", el("div", { class: "segments" }, table(headings, rows, caption)));
}

drawTop("Reranking report", data.source, data.rows);
drawThreshold();
drawRerankMetrics();
drawPopulation();
drawQueries();
finish();
