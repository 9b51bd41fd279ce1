// The page of a monitored map: a sentence, and one chart per question with the days along x.
const CHART_HEIGHT = 200;
const CHART_LEFT = 46;
// Half of the last date.
const CHART_RIGHT = 36;

// Dates lie as far apart as their days; a gap in the store is a gap in the chart.
const dayNumber = (date) => Date.parse(date) / 86400000;
const decimal = (places) => (value) => digits(value, places).replace(/^-(0\.?0*)$/, "$1");

function drawMonitor() {
  const { days, alarm, headline } = data;
  const labels = days.reduce((sum, day) => sum + day.labels, 0);
  const facts =
    `${count(labels)} labels and ${count(data.rows)} scores on ${count(days.length)} days, ` +
    `${days[0].date} to ${days[days.length - 1].date}.`;
  const tone = alarm ? "bad" : "good";
  const sentence = el("p", { class: "strong", id: "verdict" }, headline);
  const card = el("div", { class: `card tone-${tone}` }, el("h3", null, "Verdict"), sentence);
  const change = data.changes.filter(({ segment }) => segment === null).pop();
  if (change) {
    const since =
      `Since ${change.date}: level ${estimate(change.level)} ` +
      `(0 is ideal), slope ${estimate(change.slope)} (1 is ideal).`;
    card.append(el("p", { id: "change" }, since));
  }
  if (data.moved) {
    const moved = `In the last ${data.window} days ${data.moved}`;
    card.append(el("p", { id: "moved" }, moved));
  }
  section("summary", "Summary", card, el("p", { class: "small" }, facts));
  drawEvidence();
  drawCorrections();
  drawRates();
  drawMonitorProvenance();
}

function estimate({ value, low, high }) {
  const within = interval(low, high, decimal(2));
  return `${decimal(2)(value)}${within ? ` (${within})` : ""}`;
}

function drawEvidence() {
  const limit = data.threshold / Math.LN10;
  // One day of evidence can be far above the line, where it would hide the rest.
  const power = (evidence) => Math.min(evidence / Math.LN10, 4 * limit);
  const lines = [
    { kind: "primary", name: "level", value: (day) => power(day.level_evidence) },
    { kind: "secondary", name: "slope", value: (day) => power(day.slope_evidence) },
  ];
  const caption =
    "Evidence that calibration has changed (e-processes, as powers of ten). At the dashed line " +
    `it is an alarm, and the search for the next change begins; above ${digits(4 * limit, 1)} it ` +
    "is cut off. In a year without change either line reaches it with a probability of at most " +
    "5%, however often you look.";
  timeSection("evidence", "Has calibration changed?", lines, limit, decimal(1), caption);
}

function drawCorrections() {
  const places = decimal(2);
  const level = {
    kind: "primary",
    name: "level",
    value: (day) => day.level && day.level.value,
    range: (day) => day.level,
  };
  const slope = { ...level, name: "slope", value: (day) => day.slope && day.slope.value };
  slope.range = (day) => day.slope;
  const window = `Over the last ${data.window} days, with 95% intervals clustered by user.`;
  timeSection(
    "level", "Level", [level], 0, places,
    `What must be added to the log odds: above 0 the probabilities are too low. ${window}`,
  );
  timeSection(
    "slope", "Slope", [slope], 1, places,
    `The factor of the log odds: below 1 the probabilities are too extreme. ${window}`,
  );
}

function drawRates() {
  const lines = [
    { kind: "primary", name: "predicted", value: (day) => day.predicted },
    { kind: "positive", name: "observed", value: (day) => day.observed },
  ];
  const caption = "Mean probability and rate of positive labels among the labelled rows of a day.";
  timeSection("rates", "Predicted and observed rates", lines, null, percent, caption);
}

function timeSection(id, title, lines, guide, format, caption) {
  const draw = (width) => timeChart(width, title, lines, guide, format);
  const makeTable = () => {
    const headings = ["date", "scores", "labels", ...lines.map(({ name }) => name)];
    const rows = data.days.map((day) => [
      day.date,
      count(day.rows),
      count(day.labels),
      ...lines.map(({ value }) => (isMissing(value(day)) ? "–" : format(value(day)))),
    ]);
    return table(headings, rows, title);
  };
  const entries = lines.map(({ kind, name }) => [kind, name]);
  section(id, title, legend(entries), figure(`${id}-figure`, draw, caption, makeTable));
}

function timeChart(width, title, lines, guide, format) {
  const { days } = data;
  const numbersOf = days.map(({ date }) => dayNumber(date));
  const first = numbersOf[0];
  const end = Math.max(numbersOf[numbersOf.length - 1], first + 1);
  const x = linearScale(first, end, CHART_LEFT, width - CHART_RIGHT);
  const y = valueScale(lines, guide);
  const chart = canvas(width, CHART_HEIGHT + 26, `${title} by day. The table has the numbers.`);
  chart.append(axisY(y, CHART_LEFT, width - CHART_RIGHT, format, ""));
  chart.append(axisX(x, CHART_HEIGHT, dateText, "", dateTicks(first, end, width)));
  if (guide !== null) {
    chart.append(line([[x(first), y(guide)], [x(end), y(guide)]], "guide"));
  }
  const points = [];
  for (const each of lines) {
    const shown = days.filter((day) => !isMissing(each.value(day)));
    const at = (day) => x(dayNumber(day.date));
    if (each.range) {
      const inside = shown.filter((day) => !isMissing(each.range(day).low));
      const upper = inside.map((day) => [at(day), y(each.range(day).high)]);
      const lower = inside.map((day) => [at(day), y(each.range(day).low)]);
      chart.append(band(upper, lower, "primary"));
    }
    chart.append(line(shown.map((day) => [at(day), y(each.value(day))]), each.kind));
    for (const day of shown) {
      const range = each.range ? each.range(day) : {};
      const within = interval(range.low, range.high, format);
      const text = `${each.name} ${format(each.value(day))}${within ? ` (${within})` : ""}`;
      points.push({ x: at(day), y: y(each.value(day)), lines: [day.date, text] });
    }
  }
  hover(chart, (px, py) => nearest(points, px, py));
  return chart;
}

// From the lowest to the highest value that is drawn. The wide intervals of the first days would
// flatten all others, so a band may be cut at three times the range of the values.
function valueScale(lines, guide) {
  const values = guide === null ? [] : [guide];
  const ends = [];
  for (const { value, range } of lines) {
    for (const day of data.days) {
      if (isMissing(value(day))) continue;
      values.push(value(day));
      if (range && !isMissing(range(day).low)) ends.push(range(day).low, range(day).high);
    }
  }
  if (!values.length) values.push(0, 1);
  const lowest = Math.min(...values);
  const highest = Math.max(...values);
  const margin = Math.max(highest - lowest, 0.02 * Math.abs(highest), 1e-3);
  const low = Math.max(Math.min(lowest, ...ends), lowest - margin) - 0.05 * margin;
  const high = Math.min(Math.max(highest, ...ends), highest + margin) + 0.05 * margin;
  const scale = linearScale(low, high, CHART_HEIGHT, 14);
  const clamped = (value) => scale(clamp(value, low, high));
  return Object.assign(clamped, { ticks: scale.ticks, domain: scale.domain });
}

const dateText = (number) => new Date(number * 86400000).toISOString().slice(0, 10);

// Whole days, so that no date is written twice.
function dateTicks(first, end, width) {
  const most = Math.max(2, Math.floor(width / 110));
  const step = Math.max(1, Math.ceil((end - first) / most));
  const ticks = [];
  for (let tick = first; tick <= end; tick += step) ticks.push(tick);
  return ticks;
}

function drawMonitorProvenance() {
  const entries = [
    ["Store", nameOf(data.source)],
    ["Digest of the map", el("code", null, data.map_digest)],
    ["Versions", versionsText(data.versions)],
    ["Command", el("code", null, data.command)],
  ];
  section("provenance", "Provenance", definitions(entries));
}
