const SEGMENTS_SHOWN = 6;

function drawSegments() {
  if (!data.segments.length) {
    const text =
      "Name an item column (--item), a user column (--user) or any other column (--segment) to " +
      "see calibration by segment.";
    section("segments", "Segments", el("p", null, text));
    return;
  }
  const introduction =
    "A map can be right on average and wrong for a segment. Segments whose gap is larger than " +
    "chance explains come first, the largest such gap on top.";
  section(
    "segments",
    "Segments",
    el("p", null, introduction),
    segmentTest(data.segment_test),
    data.segments.map(segmentTable),
  );
}

// Of many segments the worst looks bad by chance: what is left when that is accounted for.
function segmentTest({ tested, deviating, p_value, terms }) {
  const chance = p_value < 0.001 ? "below 0.1%" : percent(p_value);
  const result =
    deviating > 0
      ? `${deviating} of ${tested} segments deviate more than the worst of ${tested} would by chance.`
      : `No segment deviates more than the worst of ${tested} would by chance (its chance is ${chance}).`;
  const fix = [
    " A model with these terms can follow them: ",
    el("code", { id: "terms" }, terms),
    ". Fit it on the table that the map is fitted on, not on this one.",
  ];
  return el("p", { id: "segment-test" }, result, terms ? fix : null);
}

function segmentTable({ title, note, segments }) {
  const most = 1.05 * Math.max(...segments.flatMap(({ predicted, high }) => [predicted, high]));
  const rows = segments.map((segment, at) => segmentRow(segment, most, at >= SEGMENTS_SHOWN));
  const heads = [
    columnHead("segment"),
    columnHead("predicted"),
    columnHead("observed"),
    el("th", { scope: "col", class: "wide" }, "predicted | and observed •"),
    columnHead("predictions are"),
    el("th", { scope: "col", class: "count" }, "rows"),
  ];
  const caption = `${title}: predicted and observed rates, worst first`;
  const node = el(
    "table",
    null,
    el("caption", null, caption),
    el("thead", null, el("tr", null, heads)),
    el("tbody", null, rows),
  );
  return el(
    "div",
    { class: "segments" },
    el("h3", null, nameOf(title)),
    el("p", { class: "small" }, note),
    scrollable(caption, node),
    rows.length > SEGMENTS_SHOWN ? showAllButton(rows) : null,
  );
}

function showAllButton(rows) {
  const button = el("button", { type: "button", class: "more" }, `Show all ${rows.length}`);
  button.addEventListener("click", () => {
    for (const row of rows) row.hidden = false;
    button.remove();
  });
  return button;
}

function segmentRow(segment, most, hidden) {
  const { name, predicted, observed, low, high, gap, rows } = segment;
  const isMiscalibrated = segment.p_value < 0.05;
  let verdict = "within chance";
  if (isMiscalibrated && segment.excess_gap > 0) verdict = gap > 0 ? "too low" : "too high";
  else if (isMiscalibrated) verdict = "wrong slope";
  return el(
    "tr",
    { class: isMiscalibrated ? "miscalibrated" : null, hidden },
    rowHead([nameOf(name), el("span", { class: "interval narrow" }, `${count(rows)} rows`)]),
    el("td", null, percent(predicted)),
    el(
      "td",
      null,
      el("span", { class: "value" }, percent(observed)),
      el("span", { class: "interval" }, interval(low, high, percent)),
    ),
    el("td", { class: "wide" }, segmentChart(segment, most)),
    el("td", { class: "verdict" }, verdict),
    el("td", { class: "count" }, count(rows)),
  );
}

// The observed rate with its interval, and the mean prediction as a vertical mark.
function segmentChart({ predicted, observed, low, high }, most) {
  const x = linearScale(0, most, 4, 156);
  const range = interval(low, high, percent);
  const label = `predicted ${percent(predicted)}, observed ${percent(observed)} (${range})`;
  const horizontal = (from, to, kind) =>
    svg("line", { x1: from, x2: to, y1: 9, y2: 9, class: kind });
  const at = x(predicted);
  return svg(
    "svg",
    { class: "segment-chart", viewBox: "0 0 160 18", role: "img", "aria-label": label },
    horizontal(4, 156, "base"),
    horizontal(x(Math.max(0, low)), x(Math.min(most, high)), "interval-line"),
    svg("circle", { cx: x(Math.min(most, observed)), cy: 9, r: 4, class: "dot primary" }),
    svg("line", { x1: at, x2: at, y1: 2, y2: 16, class: "prediction-mark" }),
  );
}
